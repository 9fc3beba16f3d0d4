"""`Secrets`: values that go in and never come out, but to the plugins they are bound to.

Owns who may set them, and that a new value counts from the next invocation on. What is kept is sealed by the `Keyring`;
nothing here is logged, and no error quotes a value.
"""

from __future__ import annotations

import asyncio
import binascii
import hashlib
import importlib
import importlib.util
import os
import re
import secrets
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from plugbay.model.errors import PlugbayError
from plugbay.packages import durable
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import denied, not_found, unavailable
from plugbay.server.domain.ids import Ids, new_id
from plugbay.server.domain.orgs import Orgs
from plugbay.server.domain.principal import Principal
from plugbay.store import secrets as rows
from plugbay.store.database import Database, Tx
from plugbay.store.pages import Page, Part
from plugbay.store.secrets import SecretRow

VARIABLE, FILE_VARIABLE = "PLUGBAY_SECRET_KEY", "PLUGBAY_SECRET_KEY_FILE"
FILE_NAME = "secret.key"
SERVICE, USER = "plugbay", "secret-key"
"""Under what the system's keyring has them; the user's name has the data directory in it."""

KEY_BYTES = 32
NONCE_BYTES = 12
MAX_FILE = 64 << 10


class KeysUnusable(PlugbayError):
    """There is no key that secrets could be sealed with, or a secret was sealed with one that is gone."""


class Sealed(NamedTuple):
    """A value that only the holder of a key can read."""

    key_id: str
    nonce: bytes
    data: bytes


class Keyring:
    """Some keys; the first one seals, all of them open."""

    def __init__(self, keys: Sequence[bytes], home: Home) -> None:
        self._keys = {key_id(key): key for key in keys}
        self._current = key_id(keys[0])
        self._home = home

    @property
    def current(self) -> str:
        """The id of the key that seals."""
        return self._current

    @property
    def place(self) -> str:
        """Where the keys are, for people."""
        return self._home.name

    def seal(self, value: str, bound: str) -> Sealed:
        """Seal a value so that it is one only where `bound` is the same."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        data = AESGCM(self._keys[self._current]).encrypt(nonce, value.encode(), bound.encode())
        return Sealed(self._current, nonce, data)

    def open(self, sealed: Sealed, bound: str) -> str:
        """The value; raises `KeysUnusable` when the key is gone, or when this is not what was sealed."""
        key = self._keys.get(sealed.key_id)
        if key is None:
            raise KeysUnusable(f"it was sealed with key {sealed.key_id}, which is not in {self.place}")
        try:
            return AESGCM(key).decrypt(sealed.nonce, sealed.data, bound.encode()).decode()
        except InvalidTag:
            raise KeysUnusable("what is kept is not what was sealed here") from None

    def add_key(self) -> str:
        """Make a new key and seal with it from now on; the old ones stay until `forget_others`."""
        fresh = secrets.token_bytes(KEY_BYTES)
        self._home.write([fresh, *self._keys.values()])
        self._keys = {key_id(fresh): fresh, **self._keys}
        self._current = key_id(fresh)
        return self._current

    def forget_others(self) -> None:
        """Nothing is sealed with any other key any more."""
        self._home.write([self._keys[self._current]])
        self._keys = {self._current: self._keys[self._current]}


class Home:
    """Where keys are kept. This one is the operator's, and only read."""

    def __init__(self, name: str) -> None:
        self.name = name

    def write(self, keys: Sequence[bytes]) -> None:
        raise KeysUnusable(f"the keys are the operator's, in {self.name}: put the new one first there, and start again")


class _File(Home):
    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path

    def read(self) -> list[bytes] | None:
        try:
            with open(os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                mode, text = os.fstat(file.fileno()).st_mode, file.read(MAX_FILE)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise KeysUnusable(f"{self._path} cannot be read: {error.strerror}") from None
        if mode & 0o077:
            raise KeysUnusable(f"others can read {self._path} (mode {stat.S_IMODE(mode):o}); chmod 600 it")
        return _decoded(text.decode("ascii", "replace"), self.name)

    def write(self, keys: Sequence[bytes]) -> None:
        durable.write_file(self._path, _encoded(keys).encode(), mode=0o600)


class _System(Home):
    """The keyring of whoever is logged in."""

    def __init__(self, data: Path) -> None:
        super().__init__("the system's keyring")
        self._user = f"{USER} {data}"

    def read(self) -> list[bytes] | None:
        """None: it has none for us, or there is no keyring here."""
        library = _library()
        if library is None:
            return None
        try:
            text = library.get_password(SERVICE, self._user)
        except library.errors.KeyringError:
            return None
        return None if text is None else _decoded(text, self.name)

    def write(self, keys: Sequence[bytes]) -> None:
        library = _library()
        if library is None:
            raise KeysUnusable("there is no keyring on this system")
        try:
            library.set_password(SERVICE, self._user, _encoded(keys))
        except library.errors.KeyringError:
            raise KeysUnusable("the system's keyring does not take the key") from None


def _library() -> Any:
    """The package `keyring`, where somebody has installed it; None: nobody has."""
    return importlib.import_module("keyring") if importlib.util.find_spec("keyring") is not None else None


def load_keyring(data: Path, environ: Mapping[str, str]) -> Keyring:
    """The keys of a gateway; raises `KeysUnusable`. Where nobody has any, one is made in the data directory."""
    if environ.get(VARIABLE):
        return Keyring(_decoded(environ[VARIABLE], VARIABLE), Home(VARIABLE))
    if environ.get(FILE_VARIABLE):
        named = Path(environ[FILE_VARIABLE])
        keys = _File(named).read()
        if not keys:
            raise KeysUnusable(f"there is no key in {named}, which {FILE_VARIABLE} names")
        return Keyring(keys, Home(str(named)))
    system, file = _System(data), _File(data / FILE_NAME)
    for home in (system, file):
        keys = home.read()
        if keys:
            return Keyring(keys, home)
    fresh = [secrets.token_bytes(KEY_BYTES)]
    try:
        system.write(fresh)
        return Keyring(fresh, system)
    except KeysUnusable:
        file.write(fresh)
    return Keyring(fresh, file)


def key_id(key: bytes) -> str:
    """What a key is called: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(key).hexdigest()[:16]


def _encoded(keys: Sequence[bytes]) -> str:
    return "".join(binascii.b2a_base64(key).decode() for key in keys)


def _decoded(text: str, source: str) -> list[bytes]:
    """Keys in base64, divided by white space or commas. What is no key is not quoted."""
    keys = []
    for word in text.replace(",", " ").split():
        try:
            key = binascii.a2b_base64(word.encode("ascii", "replace"), strict_mode=True)
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            raise KeysUnusable(f"{source} has something in it that is not {KEY_BYTES} bytes in base64")
        keys.append(key)
    if not keys:
        raise KeysUnusable(f"there is no key in {source}")
    return keys


SCHEME = "secret://"

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"
"""Of a secret."""

_REFERENCE = re.compile(rf"secret://(?P<scope>[A-Za-z0-9][A-Za-z0-9_.-]{{0,63}})/(?P<name>{NAME})", re.ASCII)


class SecretRef(NamedTuple):
    """One secret, by whose it is and what it is called."""

    scope: str
    """An org, or a project."""
    name: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.scope}/{self.name}"


def parse_reference(text: object) -> SecretRef | None:
    """The reference in a text; None: it is none. A key that somebody pasted is none, and is not to be quoted."""
    found = _REFERENCE.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else SecretRef(found["scope"], found["name"])


AT_ONCE = 100
"""Secrets that are sealed anew in one transaction when the key is changed."""


@dataclass(frozen=True, slots=True)
class SecretScope:
    """Whose secret: an org's, or one project's."""

    org_id: str
    project_id: str | None = None

    @property
    def name(self) -> str:
        """What a reference to it begins with."""
        return self.project_id or self.org_id


class Secrets:
    """All secrets of all orgs."""

    def __init__(
        self, database: Database, orgs: Orgs, audit: Audit, keyring: Keyring, clock: Clock, ids: Ids = new_id
    ) -> None:
        self._database = database
        self._orgs = orgs
        self._audit = audit
        self._keyring = keyring
        self._clock = clock
        self._ids = ids
        self._rotating = asyncio.Lock()
        """One at a time: the end of a rotation forgets every key but the newest."""

    async def put(self, caller: Principal, scope: SecretScope, name: str, value: str) -> tuple[SecretRow, bool]:
        """Set a secret; and whether it was not there before."""
        now = self._clock.now()
        async with self._database.transaction() as tx:
            await self._require(tx, caller, scope)
            before = await rows.get(tx, scope.org_id, scope.name, name)
            version = 1 if before is None else before.version + 1
            sealed = self._keyring.seal(value, _bound(scope.org_id, scope.name, name, version))
            row = SecretRow(
                id=self._ids("sec_") if before is None else before.id,
                org_id=scope.org_id,
                scope=scope.name,
                name=name,
                version=version,
                key_id=sealed.key_id,
                nonce=sealed.nonce,
                sealed=sealed.data,
                created_at=now if before is None else before.created_at,
                updated_at=now,
            )
            await rows.put(tx, row)
            await self._note(tx, caller, "secret.put", scope, name, version=version)
        return row, before is None

    async def delete(self, caller: Principal, scope: SecretScope, name: str) -> None:
        """It is gone; invocations that need it fail from now on."""
        async with self._database.transaction() as tx:
            await self._require(tx, caller, scope)
            if not await rows.remove(tx, scope.org_id, scope.name, name):
                raise not_found("secret", name)
            await self._note(tx, caller, "secret.delete", scope, name)

    async def page(self, caller: Principal, page: Page, org_id: str | None, project_id: str | None) -> Part[SecretRow]:
        """Names and versions of what the caller can see."""
        org, project = org_id or caller.org_id, project_id or caller.project_id
        async with self._database.reading() as tx:
            if org is not None:
                await self._orgs.scope(tx, caller, org, project)
            return await rows.select_part(tx, org, None if project is None else (project,), page)

    async def missing(self, tx: Tx, org_id: str, wanted: Mapping[str, SecretRef]) -> list[str]:
        """The slots whose secret is not there."""
        found = {slot: await rows.get(tx, org_id, ref.scope, ref.name) for slot, ref in wanted.items()}
        return [slot for slot, row in found.items() if row is None]

    async def values(self, tx: Tx, org_id: str, references: Mapping[str, str]) -> dict[str, str]:
        """The secrets of one invocation, by slot. One that is not there is left out: the binding is judged for that."""
        found: dict[str, str] = {}
        for slot, text in references.items():
            ref = parse_reference(text)
            row = None if ref is None else await rows.get(tx, org_id, ref.scope, ref.name)
            if row is not None:
                found[slot] = self._opened(row)
        return found

    async def rotate_key(self, caller: Principal) -> int:
        """Make a new key, seal everything with it, and forget the old ones; how many secrets that were.

        Killed in between, it is done by the next call: what is not yet sealed anew is still opened by its own key.
        """
        if caller.org_id is not None:
            raise denied(
                "auth.role_denied", "only the operator of all orgs changes the key", required=["operator of all"]
            )
        async with self._rotating:
            count = await self._rotated()
        async with self._database.transaction() as tx:
            await self._audit.record(tx, caller, "secret.rotate_key", "key", self._keyring.current, secrets=count)
        return count

    async def _rotated(self) -> int:
        try:
            self._keyring.add_key()
        except KeysUnusable as error:
            raise unavailable("secret.key_not_ours", str(error)) from None
        async with self._database.transaction() as tx:
            await rows.settle(tx)  # what is just being set was sealed with the key before
        count = 0
        while changed := await self._reseal():
            count += changed
        self._keyring.forget_others()
        return count

    async def _reseal(self) -> int:
        """Some of what other keys have sealed is sealed by the current one; how many."""
        async with self._database.transaction() as tx:
            found = await rows.sealed_otherwise(tx, self._keyring.current, AT_ONCE)
            for row in found:
                bound = _bound(row.org_id, row.scope, row.name, row.version)
                again = self._keyring.seal(self._opened(row), bound)
                fresh = {"key_id": again.key_id, "nonce": again.nonce, "sealed": again.data}
                await rows.put(tx, _replaced(row, fresh))
            return len(found)

    def _opened(self, row: SecretRow) -> str:
        bound = _bound(row.org_id, row.scope, row.name, row.version)
        try:
            return self._keyring.open(Sealed(row.key_id, row.nonce, row.sealed), bound)
        except KeysUnusable as error:
            raise unavailable("secret.unreadable", f"the secret {row.name} cannot be read: {error}") from None

    async def _require(self, tx: Tx, caller: Principal, scope: SecretScope) -> None:
        await self._orgs.scope(tx, caller, scope.org_id, scope.project_id)
        if caller.project_id is not None and scope.project_id is None:
            raise denied("auth.role_denied", "a key of one project sets no secrets of its org", required=["org key"])

    async def _note(
        self, tx: Tx, caller: Principal, action: str, scope: SecretScope, name: str, **details: int
    ) -> None:
        await self._audit.record(
            tx, caller, action, "secret", name, org_id=scope.org_id, project_id=scope.project_id, **details
        )


def _bound(org_id: str, scope: str, name: str, version: int) -> str:
    """What a sealed value belongs to. None of these has a slash in it."""
    return f"{org_id}/{scope}/{name}/{version}"


def _replaced(row: SecretRow, fresh: Mapping[str, object]) -> SecretRow:
    return SecretRow(**{**{field: getattr(row, field) for field in SecretRow.__slots__}, **fresh})
