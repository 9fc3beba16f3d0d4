"""`TrustStore`: which keys may sign the plugins of which publisher, and until when.

A key counts only for plugins of its publisher. An unreadable file is an error, never an empty store.
"""

from __future__ import annotations

import binascii
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace
from pydantic import BaseModel, BeforeValidator, ConfigDict, RootModel

from plugbay.host.config.settings import changing
from plugbay.host.disk import durable
from plugbay.model.errors import ConfigInvalid, Problem
from plugbay.packages import documents, keys
from plugbay.packages.errors import PackageRefused, Reason

OtherKeys = Literal["refuse", "keep", "replace"]
"""What happens to other keys of a publisher when one is added."""

MAX_NAME = 500
"""Characters of a publisher name or plugin id."""


def _parse_time(value: object) -> datetime | None:
    """A time with a time zone."""
    found = datetime.fromisoformat(value) if isinstance(value, str) else None
    if value is not None and (found is None or found.tzinfo is None):
        raise ValueError("must be a time with its zone, such as 2027-12-31T23:59:00Z")
    return found


class _Entry(BaseModel):
    """One key in the file."""

    model_config = ConfigDict(extra="forbid")

    key_id: str
    public_key: str
    publisher: str
    packages: list[str] = []
    not_after: Annotated[datetime | None, BeforeValidator(_parse_time)] = None
    revoked: bool = False


class _Entries(RootModel[list[_Entry]]):
    """The file."""


class TrustedKey(msgspec.Struct, frozen=True):
    """A public key and the plugins it may sign."""

    public_key: bytes
    publisher: str
    packages: tuple[str, ...] = ()
    """Further plugin ids that it may sign: ids without a publisher prefix."""
    not_after: datetime | None = None
    revoked: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for impossible names of publishers and plugins: such a key would never match."""
        for what, name in (("publisher", self.publisher), *(("package", name) for name in self.packages)):
            if not 0 < len(name) <= MAX_NAME or not name.isprintable() or name != name.strip():
                text = "is not a name: it is empty, too long, or has characters that cannot be printed"
                raise ValueError(f"{what} {name!r} {text}")
        if "/" in self.publisher or self.publisher != self.publisher.strip("."):
            text = "is not a publisher: use the first part of the id, such as acme in acme/devkit and acme.notes"
            raise ValueError(f"publisher {self.publisher!r} {text}")

    @property
    def key_id(self) -> str:
        return keys.key_id(self.public_key)

    def covers(self, package_id: str) -> bool:
        """Whether the plugin belongs to this publisher: both `acme/devkit` and `acme.devkit` belong to acme."""
        if package_id in self.packages:
            return True
        owner, slash, _ = package_id.partition("/")
        return owner == self.publisher if slash else f"{package_id}.".startswith(f"{self.publisher}.")

    def is_good(self, now: datetime) -> bool:
        """Neither revoked nor expired."""
        return not self.revoked and (self.not_after is None or now < self.not_after)

    def to_json(self) -> dict[str, Any]:
        """The entry in the file and in `plugbay trust list --json`."""
        return {
            "key_id": self.key_id,
            "public_key": binascii.b2a_base64(self.public_key, newline=False).decode(),
            "publisher": self.publisher,
            "packages": list(self.packages),
            "not_after": None if self.not_after is None else self.not_after.isoformat(),
            "revoked": self.revoked,
        }


class TrustStore:
    """The keys in one file; a missing file has none."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def keys(self) -> list[TrustedKey]:
        """All keys, including revoked ones; raises `ConfigInvalid` for an invalid file."""
        return self.read() or []

    def read(self) -> list[TrustedKey] | None:
        """The same; None if there is no file."""
        try:
            found = documents.read(_Entries, self._read())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._invalid(f"cannot be read: {error.strerror}") from error
        if isinstance(found, list):
            raise ConfigInvalid(str(self.path), found)
        known = {entry.key_id: self._key(entry) for entry in found.root}
        if len(known) < len(found.root):
            raise self._invalid("it contains a key twice")
        return list(known.values())

    def add(self, key: TrustedKey, other_keys: OtherKeys = "refuse") -> list[TrustedKey]:
        """Add a key, or change the entry of this key; returns the keys that it replaced. A revoked key stays revoked.

        `other_keys` decides about other keys of this publisher, and about the same key for another publisher.
        """
        if keys.is_weak(key.public_key):
            raise PackageRefused(Reason.KEY_UNUSABLE, f"key {key.key_id} is weak: signatures for it can be forged")
        with self._editing() as known:
            same = known.get(key.key_id)
            if same is not None and same.revoked:
                raise PackageRefused(Reason.KEY_REVOKED, f"key {key.key_id} was revoked; it cannot be trusted again")
            others = [item for item in known.values() if _is_other_key(item, key)]
            if same is not None and same.publisher != key.publisher and other_keys != "replace":
                text = f"key {key.key_id} is trusted for {same.publisher}, not for {key.publisher}"
                raise _conflict(text, "--replace trusts it for the new publisher instead", [same])
            if others and other_keys == "refuse":
                text = f"{key.publisher} has another trusted key, so {key.key_id} was not added"
                hint = "--replace trusts only the new key; --also trusts both, while the publisher changes keys"
                raise _conflict(text, hint, others)
            replaced = others if other_keys == "replace" else []
            for item in replaced:
                del known[item.key_id]
            known[key.key_id] = key
            return replaced

    def revoke(self, key_id: str) -> TrustedKey:
        """Revoke a key; it stays in the file, so that it cannot be added again by mistake."""
        with self._editing() as known:
            if key_id not in known:
                text = f"there is no key {key_id} in {self.path}"
                raise PackageRefused(Reason.NOT_FOUND, text, hint="plugbay trust list shows them all", key_id=key_id)
            known[key_id] = replace(known[key_id], revoked=True)
            return known[key_id]

    def judge(self, key_id: str, package_id: str, now: datetime) -> TrustedKey:
        """Return the key if it may sign this plugin now; else raise `PackageRefused` with the keys that may."""
        known = self.keys()
        key = next((item for item in known if item.key_id == key_id), None)
        expected = [item for item in known if item.covers(package_id) and item.is_good(now)]
        if key is None:
            raise _refused(Reason.KEY_UNKNOWN, f"it is signed with key {key_id}, which is not trusted", expected)
        if key.revoked:
            raise _refused(Reason.KEY_REVOKED, f"key {key_id} of {key.publisher} was revoked", expected)
        if not key.covers(package_id):
            text = f"key {key_id} is {key.publisher}'s; it may not sign {package_id}"
            also = f"plugbay trust add KEY.pub --publisher {key.publisher} --package {package_id}"
            raise _refused(Reason.KEY_OF_OTHER_PUBLISHER, text, expected, f"if the publisher owns it: {also}")
        if not key.is_good(now):
            text = f"key {key_id} of {key.publisher} expired on {key.not_after:%Y-%m-%d}"
            raise _refused(Reason.KEY_EXPIRED, text, expected)
        return key

    @contextmanager
    def _editing(self) -> Iterator[dict[str, TrustedKey]]:
        """The keys by id, written back at the end, under a lock."""
        with changing(self.path.parent):
            known = {item.key_id: item for item in self.keys()}
            yield known
            durable.write_file(self.path, documents.pretty([item.to_json() for item in known.values()]))

    def _read(self) -> bytes:
        """Read the file; refused when others can write it."""
        with open(self.path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & 0o022:
                text = f"other users can change it (mode {stat.S_IMODE(mode):o}); run: chmod go-w {self.path}"
                raise self._invalid(text)
            return file.read(documents.MAX_BYTES + 1)

    def _key(self, entry: _Entry) -> TrustedKey:
        try:
            public = binascii.a2b_base64(entry.public_key, strict_mode=True)
        except ValueError:
            public = b""
        if len(public) != keys.KEY_BYTES:
            raise self._invalid(f"the public key of {entry.key_id} is not {keys.KEY_BYTES} bytes in base64")
        try:
            key = TrustedKey(public, entry.publisher, tuple(entry.packages), entry.not_after, entry.revoked)
        except ValueError as error:
            raise self._invalid(str(error)) from None
        if entry.key_id != key.key_id:
            raise self._invalid(f"the id of a key is {key.key_id}, but the file calls it {entry.key_id}")
        return key

    def _invalid(self, text: str) -> ConfigInvalid:
        return ConfigInvalid(str(self.path), [Problem("invalid_value", "", text)])


def _is_other_key(item: TrustedKey, key: TrustedKey) -> bool:
    return item.publisher == key.publisher and item.key_id != key.key_id and not item.revoked


def _conflict(text: str, hint: str, others: list[TrustedKey]) -> PackageRefused:
    listed = ", ".join(f"{key.key_id} ({key.publisher})" for key in others)
    return PackageRefused(Reason.KEY_CONFLICT, f"{text}: {listed}", hint=hint, keys=[key.key_id for key in others])


def _refused(reason: Reason, text: str, expected: list[TrustedKey], hint: str = "") -> PackageRefused:
    listed = ", ".join(f"{key.key_id} ({key.publisher})" for key in expected)
    text += f"; expected: {listed}" if listed else "; no trusted key may sign it"
    hint = hint or "ask its publisher for a package signed with a trusted key"
    if reason is Reason.KEY_UNKNOWN:
        hint = "if you got this key from the publisher by a trusted way: plugbay trust add KEY.pub --publisher NAME"
    return PackageRefused(reason, text, hint=hint, expected=[key.key_id for key in expected])
