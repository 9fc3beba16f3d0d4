"""Builders for tests: valid packages from real plugin folders, invalid ones from raw tar headers, and trusted keys."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugbay.packages import archive, keys, signature
from plugbay.packages.archive import signature_path
from plugbay.packages.installer import Installer
from plugbay.packages.package import open_archive
from plugbay.packages.store import Store
from plugbay.packages.trust import TrustedKey, TrustStore
from tests.support.plugins import ECHO_SH, write_plugin

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
PLUGIN = "acme.notes"

ANSWER_SH = ECHO_SH.replace('"output":%s}}\\n\' "$id" "$input"', '"output":{{"version":"VERSION"}}}}\\n\' "$id"')
"""Answers any call with the version it was packed as."""


def plugin(root: Path, version: str = "1.0.0", plugin_id: str = PLUGIN, **manifest: Any) -> Path:
    """The folder of a working plugin that returns its version."""
    script = ANSWER_SH.replace("VERSION", version)
    return write_plugin(root / version, plugin_id, script=script, plugin_version=version, **manifest)


def key() -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.generate()


def pack(root: Path, version: str = "1.0.0", plugin_id: str = PLUGIN, **manifest: Any) -> Path:
    """An unsigned package."""
    return archive.pack(plugin(root / "src", version, plugin_id, **manifest), root).path


def sign(package: Path, private: Ed25519PrivateKey) -> Path:
    """The same package with a signature beside it."""
    scratch = package.parent / f"scratch-{package.name}"
    scratch.mkdir()
    made = signature.sign(open_archive(package, scratch).package, private, NOW)
    signature_path(package).write_bytes(made.to_bytes())
    return package


def trust(path: Path, *trusted: tuple[Ed25519PrivateKey, str]) -> TrustStore:
    """A trust store with these keys and publishers."""
    store = TrustStore(path)
    for private, publisher in trusted:
        store.add(TrustedKey(keys.public_of(private), publisher))
    return store


class Bench:
    """A store, a trusted publisher, and an installer."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.key = key()
        self.trust = trust(root / "trust.json", (self.key, "acme"))
        self.store = Store(root / "store")
        self.installer = Installer(self.store, self.trust, lambda: NOW)

    def release(self, version: str, **manifest: Any) -> Path:
        """A signed package of this version."""
        return sign(pack(self.root / f"release-{version}-{len(manifest)}", version, **manifest), self.key)

    def install(self, package: Path, *, allow_unsigned: bool = False, allow_downgrade: bool = False) -> str:
        """Install and return the current version."""
        with self.installer.candidate(package, allow_unsigned=allow_unsigned) as candidate:
            return self.installer.install(candidate, allow_downgrade=allow_downgrade).current.version

    def edit_signature(self, package: Path, **changes: Any) -> Path:
        document = json.loads(signature_path(package).read_bytes())
        signature_path(package).write_text(json.dumps(document | changes))
        return package


def tarball(*members: tarfile.TarInfo | tuple[str, bytes], format: int = tarfile.USTAR_FORMAT) -> bytes:
    """A gzipped tar of the standard library."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as tar:
        for member in members:
            if isinstance(member, tuple):
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
            else:
                tar.addfile(member, io.BytesIO(bytes(member.size)))
    return gzip.compress(buffer.getvalue(), mtime=0)


def entry(name: str, kind: bytes, **fields: Any) -> tarfile.TarInfo:
    """A tar header of any type."""
    info = tarfile.TarInfo(name)
    info.type = kind
    for field, value in fields.items():
        setattr(info, field, value)
    return info
