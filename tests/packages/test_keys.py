"""Key files: private modes, refused when readable by others, and weak keys."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

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
    assert (tmp_path / "k.pub").stat().st_mode & 0o777 == 0o644
    assert keys.public_of(keys.load_private(tmp_path / "k.key")) == public
    assert keys.load_public(tmp_path / "k.pub") == public
    assert len(keys.key_id(public)) == 16


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    keys.make(tmp_path / "k.key", tmp_path / "k.pub")
    before = (tmp_path / "k.key").read_bytes()
    with pytest.raises(PackageRefused, match="never overwrites"):
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
    with pytest.raises(PackageRefused, match="not an Ed25519 private key") as caught:
        keys.load_private(path)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("name", ["curve.pub", "text.pub", "text.key"])
def test_a_file_without_a_public_key_is_refused(tmp_path: Path, name: str) -> None:
    other_keys(tmp_path)
    with pytest.raises(PackageRefused, match="not an Ed25519 public key"):
        keys.load_public(tmp_path / name)


def test_a_public_key_instead_of_a_private_one_is_reported(tmp_path: Path) -> None:
    keys.make(tmp_path / "k.key", tmp_path / "k.pub")
    with pytest.raises(PackageRefused, match="not an Ed25519 private key"):
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


# Vectors of Ed25519 that verifiers disagree on, made from RFC 8032's equation S·B = R + k·A.

BASE_POINT = bytes.fromhex("58" + "66" * 31)
EIGHTH = bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a")
"""A point of order 8."""

RFC_8032 = (
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
)
"""Seeds, public keys, messages and signatures of RFC 8032, section 7.1."""

NEUTRAL: Point = (0, 1)


def multiply(number: int, point: Point) -> Point:
    result = NEUTRAL
    while number:
        if number & 1:
            result = add(result, point)
        point, number = add(point, point), number >> 1
    return result


def compress(point: Point, *, beyond: int = 0) -> bytes:
    """The encoding; `beyond` adds the prime to y, which makes another encoding of the same point."""
    x, y = point
    return (y + beyond * PRIME | (x & 1) << 255).to_bytes(32, "little")


class Signer:
    """A key whose numbers are known, so that it can sign against the rules."""

    def __init__(self, torsion: Point = NEUTRAL) -> None:
        """`torsion` is added to the public key."""
        self.number = int.from_bytes(hashlib.sha512(b"a key").digest(), "little") % ORDER
        self.base = decompress(BASE_POINT)
        self.public = compress(add(multiply(self.number, self.base), torsion))

    def challenge(self, point: bytes, data: bytes) -> int:
        return int.from_bytes(hashlib.sha512(point + self.public + data).digest(), "little") % ORDER

    def sign(self, data: bytes, nonce: int = 12345, torsion: Point = NEUTRAL, point: bytes | None = None) -> bytes:
        point = point or compress(add(multiply(nonce, self.base), torsion))
        number = (nonce + self.challenge(point, data) * self.number) % ORDER
        return point + number.to_bytes(32, "little")


def with_number(signature: bytes, number: int) -> bytes:
    return signature[:32] + number.to_bytes(32, "little")


def number_of(signature: bytes) -> int:
    return int.from_bytes(signature[32:], "little")


def bad_signatures() -> dict[str, tuple[bytes, bytes]]:
    """A public key and a signature of `data` that a strict verifier refuses, by name."""
    signer, torsion = Signer(), decompress(EIGHTH)
    public, good = signer.public, signer.sign(b"data")
    number = number_of(good)
    cases = {f"S + {times} L": with_number(good, number + times * ORDER) for times in range(1, 15)}
    cases |= {
        "S = 0": with_number(good, 0),
        "S = 1": with_number(good, 1),
        "S = L": with_number(good, ORDER),
        "S = L - 1": with_number(good, ORDER - 1),
        "S = 2^256 - 1": with_number(good, 2**256 - 1),
        "S negated": with_number(good, ORDER - number),
        "S with its highest bit": with_number(good, number | 1 << 255),
        "R = 0": bytes(32) + good[32:],
        "R with the other sign": bytes([*good[:31], good[31] ^ 0x80]) + good[32:],
        "R = all ones": b"\xff" * 32 + good[32:],
        "all zero": bytes(64),
        "R and S exchanged": good[32:] + good[:32],
        "empty": b"",
        "R alone": good[:32],
        "truncated": good[:-1],
        "truncated by a half": good[:48],
        "extended by zero": good + b"\0",
        "extended by itself": good + good,
        "led by zero": b"\0" + good,
        "as hex": good.hex().encode(),
        "in DER": b"\x30\x44\x02\x20" + good[:32] + b"\x02\x20" + good[32:],
        "R is neutral, made by the owner": signer.sign(b"data", nonce=0),
        "R is neutral, not canonical": signer.sign(b"data", nonce=0, point=compress(NEUTRAL, beyond=1)),
        "R is neutral with a sign": signer.sign(b"data", nonce=0, point=b"\x01" + bytes(30) + b"\x80"),
        "R of order 8": signer.sign(b"data", nonce=0, torsion=torsion),
        "R of mixed order": signer.sign(b"data", torsion=torsion),
    }
    found = {name: (public, signature) for name, signature in cases.items()}
    mixed = Signer(torsion)
    # Valid with a cofactor only: the challenge is not divisible by the order of the torsion.
    nonce = next(n for n in range(1, 99) if mixed.challenge(compress(multiply(n, mixed.base)), b"data") % 8)
    found["a key of mixed order"] = mixed.public, mixed.sign(b"data", nonce)
    found["a truncated key"] = public[:31], good
    found["an extended key"] = public + b"\0", good
    found["a key with the other sign"] = bytes([*public[:31], public[31] ^ 0x80]), good
    found["a key that is no point"] = b"\x02" + bytes(31), good
    found["a key that is not canonical"] = (2**255 - 1).to_bytes(32, "little"), good
    for weak in sorted(keys._WEAK):
        for sign in (0, 0x80):
            key_bytes = bytes([*weak[:31], weak[31] | sign])
            for at in (b"\x01" + bytes(31), key_bytes):
                found[f"a key of small order {key_bytes.hex()}, R {at.hex()[:2]}"] = key_bytes, at + bytes(32)
    return found


BAD_SIGNATURES = bad_signatures()


@requirement("vai:package-signature-strict")
@pytest.mark.parametrize("name", BAD_SIGNATURES)
def test_a_signature_that_verifiers_disagree_on_is_refused(name: str) -> None:
    public, signature = BAD_SIGNATURES[name]
    assert keys.verify(public, signature, b"data") is False


@requirement("vai:package-signature-strict")
def test_signatures_that_keep_the_rules_are_accepted() -> None:
    signer = Signer()
    for nonce in (1, 2, 12345, ORDER - 1):
        assert keys.verify(signer.public, signer.sign(b"data", nonce), b"data")
    for seed, public, data, signature in RFC_8032:
        made = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed))
        assert keys.public_of(made).hex() == public
        assert keys.verify(bytes.fromhex(public), bytes.fromhex(signature), bytes.fromhex(data))
        assert not keys.verify(bytes.fromhex(public), bytes.fromhex(signature), bytes.fromhex(data) + b"\0")


def test_a_pipe_is_no_key_file_and_nothing_waits_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "k.pub")
    with pytest.raises(PackageRefused, match="is not an Ed25519 public key"):
        keys.load_public(tmp_path / "k.pub")
