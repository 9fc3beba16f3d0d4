"""Key files: private modes, refused when readable by others, and weak keys."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plugbay.packages import keys
from plugbay.packages.errors import PackageRefused, Reason
from tests.packages.builders import key
from tests.support.requirements import requirement


@requirement("vai:package-private-keys")
def test_a_pair_is_made_closed_and_reads_back(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        public = keys.make(tmp_path / "k.key", tmp_path / "k.pub")
    finally:
        os.umask(before)
    assert (tmp_path / "k.key").stat().st_mode & 0o777 == 0o600
    assert keys.public_of(keys.load_private(tmp_path / "k.key")) == public
    assert keys.load_public(tmp_path / "k.pub") == public
    assert len(keys.key_id(public)) == 16


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    keys.make(tmp_path / "k.key", tmp_path / "k.pub")
    before = (tmp_path / "k.key").read_bytes()
    with pytest.raises(PackageRefused, match="never overwritten"):
        keys.make(tmp_path / "k.key", tmp_path / "k.pub")
    assert (tmp_path / "k.key").read_bytes() == before
    with pytest.raises(PackageRefused):
        keys.make(tmp_path / "new.key", tmp_path / "k.pub")
    assert not (tmp_path / "new.key").exists()


@requirement("vai:package-private-keys")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_private_key_that_others_can_read_is_refused_and_says_how_to_close_it(tmp_path: Path, mode: int) -> None:
    keys.make(tmp_path / "k.key", tmp_path / "k.pub")
    (tmp_path / "k.key").chmod(mode)
    with pytest.raises(PackageRefused, match="chmod 600") as caught:
        keys.load_private(tmp_path / "k.key")
    assert caught.value.reason is Reason.KEY_UNUSABLE


def other_keys(folder: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    curve = generate_private_key(SECP256R1())
    (folder / "curve.key").write_bytes(curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    pem = curve.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "curve.pub").write_bytes(pem)
    locked = key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word"))
    (folder / "locked.key").write_bytes(locked)
    (folder / "text.key").write_text("open sesame")
    (folder / "text.pub").write_text("open sesame")


@pytest.mark.parametrize("name", ["curve", "locked", "text"])
def test_a_file_without_an_ed25519_key_is_refused_and_not_quoted(tmp_path: Path, name: str) -> None:
    other_keys(tmp_path)
    path = tmp_path / f"{name}.key"
    path.chmod(0o600)
    with pytest.raises(PackageRefused, match="no Ed25519 private key") as caught:
        keys.load_private(path)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("name", ["curve.pub", "text.pub", "text.key"])
def test_a_file_without_a_public_key_is_refused(tmp_path: Path, name: str) -> None:
    other_keys(tmp_path)
    with pytest.raises(PackageRefused, match="no Ed25519 public key"):
        keys.load_public(tmp_path / name)


def test_a_public_key_instead_of_a_private_one_is_reported(tmp_path: Path) -> None:
    keys.make(tmp_path / "k.key", tmp_path / "k.pub")
    with pytest.raises(PackageRefused, match="no Ed25519 private key"):
        keys.load_private(tmp_path / "k.pub")
    with pytest.raises(PackageRefused, match="is a folder"):
        keys.load_private(tmp_path)


def test_a_missing_key_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PackageRefused, match="no key file"):
        keys.load_private(tmp_path / "k.key")


def test_openssl_reads_the_keys_and_verifies_the_signature(tmp_path: Path) -> None:
    keys.make(tmp_path / "k.key", tmp_path / "k.pub")
    (tmp_path / "data").write_bytes(b"data")
    (tmp_path / "sig").write_bytes(keys.load_private(tmp_path / "k.key").sign(b"data"))
    command = "openssl pkeyutl -verify -pubin -inkey k.pub -rawin -in data -sigfile sig"
    done = subprocess.run(command.split(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Verified Successfully" in done.stdout


def test_a_signature_holds_for_its_data_and_key_only() -> None:
    mine, other = key(), key()
    signature = mine.sign(b"data")
    assert keys.verify(keys.public_of(mine), signature, b"data")
    assert not keys.verify(keys.public_of(mine), signature, b"date")
    assert not keys.verify(keys.public_of(other), signature, b"data")
    assert not keys.verify(keys.public_of(mine), signature[:-1], b"data")


ORDER = 2**252 + 27742317777372353535851937790883648493


def test_a_signature_whose_number_is_beyond_the_order_is_refused() -> None:
    mine = key()
    signature = mine.sign(b"data")
    larger = int.from_bytes(signature[32:], "little") + ORDER
    forged = signature[:32] + larger.to_bytes(32, "little")
    assert keys.verify(keys.public_of(mine), signature, b"data")
    assert not keys.verify(keys.public_of(mine), forged, b"data")


PRIME = 2**255 - 19
CURVE = -121665 * pow(121666, -1, PRIME) % PRIME

Point = tuple[int, int]


def decompress(encoded: bytes) -> Point:
    number = int.from_bytes(encoded, "little")
    y, sign = number % 2**255 % PRIME, number >> 255
    ratio = (y * y - 1) * pow(CURVE * y * y + 1, -1, PRIME) % PRIME
    x = pow(ratio, (PRIME + 3) // 8, PRIME)
    if (x * x - ratio) % PRIME:
        x = x * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
    assert (x * x - ratio) % PRIME == 0
    return (PRIME - x if x % 2 != sign else x) % PRIME, y


def add(one: Point, two: Point) -> Point:
    (a, b), (c, d) = one, two
    cross = CURVE * a * c * b * d % PRIME
    x = (a * d + b * c) * pow(1 + cross, -1, PRIME)
    return x % PRIME, (b * d + a * c) * pow(1 - cross, -1, PRIME) % PRIME


@requirement("vai:package-weak-keys")
def test_every_weak_key_is_a_point_of_small_order_and_known_with_either_sign() -> None:
    assert len(keys._WEAK) == 7
    for encoded in keys._WEAK:
        point = decompress(encoded)
        for _ in range(3):
            point = add(point, point)
        assert point == (0, 1), encoded.hex()
        assert keys.is_weak(encoded)
        assert keys.is_weak(encoded[:31] + bytes([encoded[31] | 0x80]))
    assert not keys.is_weak(keys.public_of(key()))


@requirement("vai:package-weak-keys")
def test_signatures_of_weak_keys_are_invalid() -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    weak, forged = b"\x01" + bytes(31), b"\x01" + bytes(63)
    Ed25519PublicKey.from_public_bytes(weak).verify(forged, b"anything")  # the library itself accepts it
    assert not keys.verify(weak, forged, b"anything")


def test_without_the_library_the_extra_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "import importlib.util; importlib.util.find_spec = lambda name: None\n"
        "from plugbay.packages import keys\n"
        "keys.verify(b'', b'', b'')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "plugbay[oci]" in done.stderr
