"""Ed25519 key files (PKCS 8 and SPKI in PEM, as in openssl), and key ids.

Private keys are created with mode 0600 and refused when others can read them. `cryptography` comes with the extra `oci`
and is imported only when a key is used.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.packages.errors import PackageRefused, Reason

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_BYTES = 32
SIGNATURE_BYTES = 64
MAX_FILE = 16 << 10
"""Size limit; an Ed25519 key in PEM has about 120 bytes."""

_WEAK = frozenset(
    bytes.fromhex(text)
    for text in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)
"""Points of small order, without sign bit: anybody can forge signatures for them as public keys."""


def key_id(public: bytes) -> str:
    """The first 16 hex digits of SHA-256 of the raw public key."""
    return hashlib.sha256(public).hexdigest()[:16]


def public_of(private: Ed25519PrivateKey) -> bytes:
    """The raw public key of a private key."""
    return private.public_key().public_bytes_raw()


def is_weak(point: bytes) -> bool:
    """Whether a point has a small order: signatures of this public key can be forged."""
    return bytes([*point[:31], point[31] & 0x7F]) in _WEAK


def make(private_path: Path, public_path: Path) -> bytes:
    """Create a key pair, never over existing files; returns the raw public key."""
    require_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    for path in (private_path, public_path):
        if path.exists():
            text = f"{path} exists; plugbay never overwrites a key"
            raise PackageRefused(Reason.KEY_UNUSABLE, text, hint="choose another name")
    private = Ed25519PrivateKey.generate()
    _create(private_path, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    _create(public_path, pem, 0o644)
    return public_of(private)


def load_private(path: Path) -> Ed25519PrivateKey:
    """Load a private key; refused when others can read the file."""
    require_library()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data, mode = _read(path)
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None  # the cause may contain the key
    if not isinstance(key, Ed25519PrivateKey):
        text = f"{path} is not an Ed25519 private key in PEM without a password"
        raise PackageRefused(Reason.KEY_UNUSABLE, text, hint="make one with: plugbay keygen NAME")
    if mode & 0o077:
        text = f"other users can read {path} (mode {stat.S_IMODE(mode):o})"
        raise PackageRefused(Reason.KEY_UNUSABLE, text, hint=f"run: chmod 600 {path}")
    return key


def load_public(path: Path) -> bytes:
    """Load a raw public key."""
    public = parse_public(_read(path)[0])
    if public is None:
        text = f"{path} is not an Ed25519 public key in PEM"
        raise PackageRefused(Reason.KEY_UNUSABLE, text, hint="use the .pub file of the pair")
    return public


def parse_public(data: bytes) -> bytes | None:
    """The raw public key of a PEM document; None when it is not one."""
    require_library()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        return None
    return key.public_bytes_raw() if isinstance(key, Ed25519PublicKey) else None


def verify(public: bytes, signature: bytes, data: bytes) -> bool:
    """Whether this is a valid signature of `data`. Stricter than the library: R of small order is refused too."""
    require_library()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if len(public) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    if is_weak(public) or is_weak(signature[:KEY_BYTES]):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def require_library() -> None:
    """Raise `PackageRefused` when `cryptography` is not installed."""
    import importlib.util

    if importlib.util.find_spec("cryptography") is None:
        text = "signatures need the library cryptography, which is not installed"
        raise PackageRefused(Reason.MISSING_EXTRA, text, hint="pip install 'plugbay[oci]'")


def _create(path: Path, data: bytes, mode: int) -> None:
    at = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with open(at, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> tuple[bytes, int]:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as file:
            return file.read(MAX_FILE), os.fstat(file.fileno()).st_mode
    except FileNotFoundError:
        raise PackageRefused(Reason.NOT_FOUND, f"there is no key file {path}") from None
    except IsADirectoryError:
        raise PackageRefused(Reason.KEY_UNUSABLE, f"{path} is a folder, not a key file") from None
