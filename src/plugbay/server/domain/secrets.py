"""`Secrets`: secret values, sealed at rest; `Keyring`: the keys that seal them; `SecretRef`: `secret://scope/name`.

    PLUGBAY_SECRET_KEY, PLUGBAY_SECRET_KEY_FILE     the operator's keys, base64 of 32 bytes each, the newest first
    the system keyring                              if the package `keyring` is installed and has a backend
    <data>/secret.key                               otherwise: a file with mode 600, created at the first start

AES-256-GCM with a fresh nonce per value; owner, name and version are authenticated, so one row cannot replace another.
A new value applies from the next invocation. Values are never logged, and no error quotes one.
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
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import replace

from plugbay.host.disk import durable
from plugbay.host.disk.secret_files import others_can_read
from plugbay.model.errors import PlugbayError
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import denied, not_found, unavailable
from plugbay.server.domain.ids import Ids, new_id
from plugbay.server.domain.orgs import Orgs
from plugbay.server.domain.principal import Principal, require_operator_of_all
from plugbay.store import secrets as rows
from plugbay.store.database import Database, Tx
from plugbay.store.pages import Page, Part
from plugbay.store.secrets import SecretRow

VARIABLE, FILE_VARIABLE = "PLUGBAY_SECRET_KEY", "PLUGBAY_SECRET_KEY_FILE"
FILE_NAME = "secret.key"
SERVICE, USER = "plugbay", "secret-key"
"""Service and user name in the system keyring; the user name contains the data directory."""

KEY_BYTES = 32
NONCE_BYTES = 12
MAX_FILE = 64 << 10


class KeysUnusable(PlugbayError):
    """There is no key to seal with, or the key of a sealed secret is missing."""


class Sealed(NamedTuple):
    """An encrypted value."""

    key_id: str
    nonce: bytes
    data: bytes


class Keyring:
    """Keys: the first one seals, all of them open."""

    def __init__(self, keys: Sequence[bytes], source: KeySource) -> None:
        self._keys = {key_id(key): key for key in keys}
        self._current = key_id(keys[0])
        self._source = source

    @property
    def current(self) -> str:
        """The id of the key that seals."""
        return self._current

    @property
    def place(self) -> str:
        """Where the keys are stored, for messages."""
        return self._source.name

    def seal(self, value: str, bound: str) -> Sealed:
        """Seal a value with `bound` as associated data."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        data = AESGCM(self._keys[self._current]).encrypt(nonce, value.encode(), bound.encode())
        return Sealed(self._current, nonce, data)

    def open(self, sealed: Sealed, bound: str) -> str:
        """Open a sealed value; raises `KeysUnusable` if the key is missing or the data was changed."""
        key = self._keys.get(sealed.key_id)
        if key is None:
            raise KeysUnusable(f"it was sealed with key {sealed.key_id}, which is missing from {self.place}")
        try:
            return AESGCM(key).decrypt(sealed.nonce, sealed.data, bound.encode()).decode()
        except InvalidTag:
            raise KeysUnusable("the sealed value was modified") from None

    def add_key(self) -> str:
        """Create a key and seal with it from now on; old keys stay until `forget_others`."""
        fresh = secrets.token_bytes(KEY_BYTES)
        self._source.write([fresh, *self._keys.values()])
        self._keys = {key_id(fresh): fresh, **self._keys}
        self._current = key_id(fresh)
        return self._current

    def forget_others(self) -> None:
        """Delete all keys but the current one; nothing may be sealed with them."""
        self._source.write([self._keys[self._current]])
        self._keys = {self._current: self._keys[self._current]}


class KeySource:
    """Where keys are stored. The base class is read-only: keys from the operator."""

    def __init__(self, name: str) -> None:
        self.name = name

    def write(self, keys: Sequence[bytes]) -> None:
        raise KeysUnusable(f"the operator manages the keys in {self.name}: put the new key first there, and restart")


class _KeyFile(KeySource):
    def __init__(self, path: Path, *, mounted: bool = False) -> None:
        """A mounted file may be a link: Kubernetes exchanges the files of a secret by one."""
        super().__init__(str(path))
        self._path = path
        self._flags = os.O_RDONLY | os.O_CLOEXEC | (0 if mounted else os.O_NOFOLLOW)

    def read(self) -> list[bytes] | None:
        try:
            with open(os.open(self._path, self._flags), "rb") as file:
                found, text = os.fstat(file.fileno()), file.read(MAX_FILE)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise KeysUnusable(f"{self._path} cannot be read: {error.strerror}") from None
        if others_can_read(found):
            mode = stat.S_IMODE(found.st_mode)
            problem = f"other users can read {self._path} (mode {mode:o}); run: chmod 600 {self._path}"
            raise KeysUnusable(problem)
        return _decode_keys(text.decode("ascii", "replace"), self.name)

    def write(self, keys: Sequence[bytes]) -> None:
        durable.write_file(self._path, _encode_keys(keys).encode(), mode=0o600)


class _SystemKeyring(KeySource):
    """The keyring of the logged-in user."""

    def __init__(self, data: Path) -> None:
        super().__init__("the system's keyring")
        self._user = f"{USER} {data}"

    def read(self) -> list[bytes] | None:
        """The keys; None if there are none, or no keyring."""
        library = _keyring_library()
        if library is None:
            return None
        try:
            text = library.get_password(SERVICE, self._user)
        except library.errors.KeyringError:
            return None
        return None if text is None else _decode_keys(text, self.name)

    def write(self, keys: Sequence[bytes]) -> None:
        library = _keyring_library()
        if library is None:
            raise KeysUnusable("there is no keyring on this system")
        try:
            library.set_password(SERVICE, self._user, _encode_keys(keys))
        except library.errors.KeyringError:
            raise KeysUnusable("the system's keyring refused the key") from None


def _keyring_library() -> Any:
    """The package `keyring`, if it is installed."""
    if importlib.util.find_spec("keyring") is None:
        return None
    if sys.platform != "darwin":
        # Elsewhere its module for macOS searches for libraries of macOS: it starts ldconfig and gcc, which takes 50 ms.
        sys.modules.setdefault("keyring.backends.macOS.api", None)  # type: ignore[arg-type]
    return importlib.import_module("keyring")


def load_keyring(data: Path, environ: Mapping[str, str]) -> Keyring:
    """The keys of a gateway, created in the data directory if there are none; raises `KeysUnusable`."""
    if environ.get(VARIABLE):
        return Keyring(_decode_keys(environ[VARIABLE], VARIABLE), KeySource(VARIABLE))
    if environ.get(FILE_VARIABLE):
        named = Path(environ[FILE_VARIABLE])
        keys = _KeyFile(named, mounted=True).read()
        if not keys:
            raise KeysUnusable(f"there is no key in {named}, the file in {FILE_VARIABLE}")
        return Keyring(keys, KeySource(str(named)))
    system, file = _SystemKeyring(data), _KeyFile(data / FILE_NAME)
    for source in (system, file):
        keys = source.read()
        if keys:
            return Keyring(keys, source)
    fresh = [secrets.token_bytes(KEY_BYTES)]
    try:
        system.write(fresh)
        return Keyring(fresh, system)
    except KeysUnusable:
        file.write(fresh)
    return Keyring(fresh, file)


def key_id(key: bytes) -> str:
    """The id of a key: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(key).hexdigest()[:16]


def _encode_keys(keys: Sequence[bytes]) -> str:
    return "".join(binascii.b2a_base64(key).decode() for key in keys)


def _decode_keys(text: str, source: str) -> list[bytes]:
    """Keys in base64, separated by white space or commas. Errors never quote the text."""
    keys = []
    for word in text.replace(",", " ").split():
        try:
            key = binascii.a2b_base64(word.encode("ascii", "replace"), strict_mode=True)
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            raise KeysUnusable(f"{source} contains a value that is not {KEY_BYTES} bytes in base64")
        keys.append(key)
    if not keys:
        raise KeysUnusable(f"there is no key in {source}")
    return keys


SCHEME = "secret://"

SECRET_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"
"""The pattern of names."""

_REFERENCE = re.compile(rf"secret://(?P<scope>[A-Za-z0-9][A-Za-z0-9_.-]{{0,63}})/(?P<name>{SECRET_NAME})", re.ASCII)


class SecretRef(NamedTuple):
    """A reference to a secret."""

    scope: str
    """An org, or a project."""
    name: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.scope}/{self.name}"


def parse_reference(text: object) -> SecretRef | None:
    """Parse a reference; None if it is none. Never quote the text: it may be a pasted key."""
    found = _REFERENCE.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else SecretRef(found["scope"], found["name"])


RESEAL_BATCH = 100
"""Secrets resealed per transaction when the key is rotated."""


class SecretScope(msgspec.Struct, frozen=True):
    """The owner of a secret: an org or a project."""

    org_id: str
    project_id: str | None = None

    @property
    def name(self) -> str:
        """The scope part of a reference."""
        return self.project_id or self.org_id


class Secrets:
    """All secrets of all orgs."""

    def __init__(
        self, database: Database, orgs: Orgs, audit: Audit, keyring: Keyring, clock: Clock, ids: Ids = new_id
    ) -> None:
        self._database = database
        self._orgs = orgs
        self._audit = audit
        self.keyring = keyring
        self._clock = clock
        self._ids = ids
        self._rotating = asyncio.Lock()
        """Serializes rotations: each ends by deleting all other keys."""

    async def put(self, caller: Principal, scope: SecretScope, name: str, value: str) -> tuple[SecretRow, bool]:
        """Set a secret; returns its row and whether it is new."""
        now = self._clock.now()
        async with self._database.transaction() as tx:
            await self._require(tx, caller, scope)
            before = await rows.get(tx, scope.org_id, scope.name, name)
            version = 1 if before is None else before.version + 1
            sealed = self.keyring.seal(value, _associated_data(scope.org_id, scope.name, name, version))
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
            await self._record_audit(tx, caller, "secret.put", scope, name, version=version)
        return row, before is None

    async def delete(self, caller: Principal, scope: SecretScope, name: str) -> None:
        """Delete a secret; invocations that need it fail from now on."""
        async with self._database.transaction() as tx:
            await self._require(tx, caller, scope)
            if not await rows.remove(tx, scope.org_id, scope.name, name):
                raise not_found("secret", name)
            await self._record_audit(tx, caller, "secret.delete", scope, name)

    async def get(self, caller: Principal, scope: SecretScope, name: str) -> SecretRow:
        """Name and version of one secret; raises `not_found`. A key of one project sees its project's secrets alone."""
        async with self._database.reading() as tx:
            await self._orgs.scope(tx, caller, scope.org_id, scope.project_id)
            found = await rows.get(tx, scope.org_id, scope.name, name)
        if found is None or caller.project_id not in (None, scope.project_id):
            raise not_found("secret", name)
        return found

    async def page(
        self,
        caller: Principal,
        page: Page,
        org_id: str | None,
        project_id: str | None,
        search: str | None = None,
    ) -> Part[SecretRow]:
        """Names and versions visible to the caller; `search` is part of a name."""
        org, project = org_id or caller.org_id, project_id or caller.project_id
        async with self._database.reading() as tx:
            if org is not None:
                await self._orgs.scope(tx, caller, org, project)
            return await rows.select_part(tx, org, None if project is None else (project,), page, search)

    async def missing(self, tx: Tx, org_id: str, wanted: Mapping[str, SecretRef]) -> list[str]:
        """Slots whose secret does not exist."""
        found = {slot: await rows.get(tx, org_id, ref.scope, ref.name) for slot, ref in wanted.items()}
        return [slot for slot, row in found.items() if row is None]

    async def values(self, tx: Tx, org_id: str, references: Mapping[str, str]) -> dict[str, str]:
        """The secrets of one invocation, by slot. Missing ones are left out; binding validation reports them."""
        found: dict[str, str] = {}
        for slot, text in references.items():
            ref = parse_reference(text)
            row = None if ref is None else await rows.get(tx, org_id, ref.scope, ref.name)
            if row is not None:
                found[slot] = self._unseal(row)
        return found

    async def rotate_key(self, caller: Principal) -> int:
        """Create a new key, reseal all secrets, delete the old keys; returns the number of secrets.

        If it is interrupted, the next call completes it: secrets that are not resealed keep their own key.
        """
        require_operator_of_all(caller, "rotates the key")
        async with self._rotating:
            count = await self._rotate()
        async with self._database.transaction() as tx:
            await self._audit.record(tx, caller, "secret.rotate_key", "key", self.keyring.current, secrets=count)
        return count

    async def _rotate(self) -> int:
        try:
            self.keyring.add_key()
        except KeysUnusable as error:
            raise unavailable("secret.key_not_ours", str(error)) from None
        async with self._database.transaction() as tx:
            await rows.settle(tx)  # concurrent writers may still use the old key
        count = 0
        while changed := await self._reseal():
            count += changed
        self.keyring.forget_others()
        return count

    async def _reseal(self) -> int:
        """Reseal one batch with the current key; returns its size."""
        async with self._database.transaction() as tx:
            found = await rows.encrypted_with_other_key(tx, self.keyring.current, RESEAL_BATCH)
            for row in found:
                bound = _associated_data(row.org_id, row.scope, row.name, row.version)
                again = self.keyring.seal(self._unseal(row), bound)
                await rows.put(tx, replace(row, key_id=again.key_id, nonce=again.nonce, sealed=again.data))
            return len(found)

    def _unseal(self, row: SecretRow) -> str:
        bound = _associated_data(row.org_id, row.scope, row.name, row.version)
        try:
            return self.keyring.open(Sealed(row.key_id, row.nonce, row.sealed), bound)
        except KeysUnusable as error:
            raise unavailable("secret.unreadable", f"the secret {row.name} cannot be read: {error}") from None

    async def _require(self, tx: Tx, caller: Principal, scope: SecretScope) -> None:
        await self._orgs.scope(tx, caller, scope.org_id, scope.project_id)
        if caller.project_id is not None and scope.project_id is None:
            raise denied("auth.role_denied", "a key of one project cannot set secrets of its org", required=["org key"])

    async def _record_audit(
        self, tx: Tx, caller: Principal, action: str, scope: SecretScope, name: str, **details: int
    ) -> None:
        await self._audit.record(
            tx, caller, action, "secret", name, org_id=scope.org_id, project_id=scope.project_id, **details
        )


def _associated_data(org_id: str, scope: str, name: str, version: int) -> str:
    """The associated data of a sealed value. No part contains a slash."""
    return f"{org_id}/{scope}/{name}/{version}"
