"""`Keyring`: the keys that seal secrets at rest, and where they come from.

    PLUGBAY_SECRET_KEY, PLUGBAY_SECRET_KEY_FILE     the operator's own, base64 of 32 bytes each, the newest first
    the system's keyring                            where the package `keyring` is installed and has a backend
    <data>/secret.key                               else: a file for nobody else's eyes, made at the first start

Owns sealing: AES-256-GCM with a fresh nonce for each value, bound to whose value it is and to its version, so that no
row of a database can be passed off as another. Knows no database.
"""

from __future__ import annotations

import binascii
import hashlib
import importlib
import importlib.util
import os
import secrets
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from plugbay.model.errors import PlugbayError
from plugbay.packages import durable

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


def load(data: Path, environ: Mapping[str, str]) -> Keyring:
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
