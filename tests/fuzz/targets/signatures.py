"""Signatures and trusted keys: nothing but the genuine document, key, files and archive is accepted."""

from __future__ import annotations

import binascii
import hashlib
import json
import shutil
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from plugbay.model.errors import ConfigInvalid, ManifestInvalid
from plugbay.model.spec import PluginSpec
from plugbay.packages import keys, signature
from plugbay.packages.errors import PackageRefused
from plugbay.packages.package import Package, open_archive
from plugbay.packages.trust import TrustStore
from tests.fuzz.scratch import scratch_folder
from tests.fuzz.targets.archives import LIMITS, packed_archive

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = keys.public_of(KEY)
NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
PLUGIN = "acme.fuzz"
MANIFEST = "rterm-plugin.json"
FILES = {
    MANIFEST: json.dumps(
        {
            "plugin_id": PLUGIN,
            "plugin_version": "1.0.0",
            "protocol_version": "rterm.plugin.v1",
            "description": "Signed.",
            "process": {"command": "sh", "args": ["run.sh"]},
            "tools": [{"name": "echo", "description": "Echo.", "input_schema": {"type": "object"}}],
        }
    ).encode(),
    "run.sh": b"exit 0\n",
}


def hashed(files: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(body).hexdigest() for name, body in files.items()}


PACKAGE = Package(Path("/fuzz"), PluginSpec(PLUGIN, "1.0.0", "rune", Path("/fuzz"), ("sh",)), MANIFEST, hashed(FILES))


@cache
def genuine() -> signature.Signature:
    return signature.sign(PACKAGE, KEY, NOW)


def check(data: bytes) -> None:
    """The first byte says what the others are."""
    if data:
        KINDS[data[0] % len(KINDS)](data[1:])


def _document(data: bytes) -> None:
    """A signature file."""
    try:
        read = signature.read(data)
        signature.check(read, PUBLIC, PACKAGE)
    except PackageRefused:
        return
    assert read == genuine(), "an altered signature is accepted"


def _raw(data: bytes) -> None:
    """A public key, a signature and a text, of any length."""
    public, made, text = data[: keys.KEY_BYTES], data[keys.KEY_BYTES :][: keys.SIGNATURE_BYTES], data[96:]
    message = genuine().signed_bytes()
    real = binascii.a2b_base64(genuine().signature)
    assert keys.verify(PUBLIC, real, message)
    assert keys.verify(PUBLIC, made, message) == (made == real)
    assert keys.verify(public, real, message) == (public == PUBLIC)
    assert keys.verify(PUBLIC, real, text) == (text == message)


def _files(data: bytes) -> None:
    """The files of a package, as JSON."""
    try:
        files = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not (isinstance(files, dict) and MANIFEST in files and all(isinstance(each, str) for each in files.values())):
        return
    try:
        signature.check(genuine(), PUBLIC, replace(PACKAGE, files=files))
    except PackageRefused:
        return
    assert files == PACKAGE.files, "altered files are accepted"


def _archive(data: bytes) -> None:
    """An archive, beside the genuine signature."""
    if not data:
        return
    scratch = scratch_folder("signatures")
    archive, inside = scratch / "package.tar.gz", scratch / "inside"
    archive.write_bytes(packed_archive(data))
    inside.mkdir()
    try:
        package = open_archive(archive, inside, LIMITS).package
        signature.check(genuine(), PUBLIC, package)
        on_disk = {name: (package.root / name).read_bytes() for name in package.files}
        assert on_disk == FILES, "an altered package is accepted"
    except (PackageRefused, ManifestInvalid):
        pass
    finally:
        shutil.rmtree(inside)


def _trust(data: bytes) -> None:
    """A file of trusted keys."""
    path = scratch_folder("trust") / "trust.json"
    path.write_bytes(data)
    path.chmod(0o600)
    store = TrustStore(path)
    try:
        known = store.keys()
    except ConfigInvalid:
        return
    for key in known:
        assert len(key.public_key) == keys.KEY_BYTES
        try:
            judged = store.judge(key.key_id, PLUGIN, NOW)
        except PackageRefused:
            continue
        assert not judged.revoked and (judged.not_after is None or judged.not_after > NOW)
        assert judged.publisher in ("acme", PLUGIN) or PLUGIN in judged.packages


def _pem(data: bytes) -> None:
    """A public key in a file."""
    public = keys.parse_public(data)
    assert public is None or len(public) == keys.KEY_BYTES


KINDS = (_document, _raw, _files, _archive, _trust, _pem)
