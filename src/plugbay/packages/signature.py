"""`marketplace.signature.json`: signing a package, and verifying the signature.

The signature covers the hash of every file by name, so it is valid for a folder, an archive and a download alike. The
order of the checks is fixed and each failure has its own reason. Whether the key is trusted is decided in `trust`.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from plugbay.packages import documents, keys
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.package import Package, tree_sha256

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SCHEMA = "vai.plugin.signature.v1"
ALGORITHM = "ed25519"

AGAIN = "get the package from its publisher again; if it is your own, sign it again"

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Text = Annotated[str, Field(min_length=1, max_length=500)]


class Signature(BaseModel):
    """The signature document."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["vai.plugin.signature.v1"] = Field(alias="schema")
    package_id: Text
    version: Text
    algorithm: Literal["ed25519"]
    key_id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    signed_at: Text
    manifest_sha256: Sha256
    tree_sha256: Sha256
    files: dict[str, Sha256]
    signature: str

    def signed_bytes(self) -> bytes:
        """The signed bytes: the schema name, then the canonical JSON without the signature."""
        return f"{SCHEMA}\n{documents.compact(self.model_dump(by_alias=True, exclude={'signature'}))}".encode()

    def to_bytes(self) -> bytes:
        """The file contents."""
        return documents.pretty(self.model_dump(by_alias=True))


def sign(package: Package, key: Ed25519PrivateKey, now: datetime) -> Signature:
    """Sign a package."""
    statement = Signature.model_validate(
        {
            "schema": SCHEMA,
            "package_id": package.id,
            "version": package.version,
            "algorithm": ALGORITHM,
            "key_id": keys.key_id(keys.public_of(key)),
            "signed_at": timestamp(now),
            "manifest_sha256": package.files[package.manifest],
            "tree_sha256": package.tree_sha256,
            "files": dict(sorted(package.files.items())),
            "signature": "",
        }
    )
    made = binascii.b2a_base64(key.sign(statement.signed_bytes()), newline=False).decode()
    return statement.model_copy(update={"signature": made})


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read(data: bytes) -> Signature:
    """Parse a signature file; raises `PackageRefused`."""
    found = documents.read(Signature, data)
    if isinstance(found, list):
        listed: list[Any] = [problem.to_json() for problem in found]
        raise _unusable("; ".join(map(str, found[:3])), problems=listed)
    return found


def check(signature: Signature, public: bytes, package: Package) -> None:
    """Verify signature and files; raises `PackageRefused` with the difference."""
    check_key(signature, public)
    check_contents(signature, package)


def check_key(signature: Signature, public: bytes) -> None:
    """Verify that this key signed the document, without looking at files; raises `PackageRefused`."""
    if not keys.verify(public, _decode(signature.signature), signature.signed_bytes()):
        text = f"the signature was not made with key {signature.key_id}, or was changed"
        raise PackageRefused(Reason.SIGNATURE_INVALID, text, hint=AGAIN)


def check_contents(signature: Signature, package: Package) -> None:
    """Verify that the files match the signature document, without checking the key; raises `PackageRefused`."""
    stated, found = f"{signature.package_id} {signature.version}", f"{package.id} {package.version}"
    if stated != found:
        text = f"the signature is for {stated}, but the manifest has {found}"
        raise PackageRefused(Reason.IDENTITY_MISMATCH, text, hint=AGAIN)
    _check_files(signature.files, package.files)
    whole = signature.manifest_sha256, signature.tree_sha256
    if whole != (package.files[package.manifest], tree_sha256(package.files)):
        raise _unusable("its hashes do not match the files of the package")


def _check_files(stated: Mapping[str, str], found: Mapping[str, str]) -> None:
    odd = (
        (Reason.MISSING_FILE, "is signed but missing", [name for name in stated if name not in found]),
        (Reason.EXTRA_FILE, "is not covered by the signature", [name for name in found if name not in stated]),
        (Reason.TAMPERED, "was changed after it was signed", [n for n in stated if found.get(n) != stated[n]]),
    )
    for reason, text, names in odd:
        if names:
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise PackageRefused(reason, f"{names[0]!r} {text}{more}", hint=AGAIN, file=names[0])


def _decode(text: str) -> bytes:
    """Decode the signature; invalid base64 becomes an empty signature."""
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return b""


def _unusable(text: str, **detail: Any) -> PackageRefused:
    text = f"the signature file cannot be used: {text}"
    return PackageRefused(Reason.BAD_SIGNATURE_FILE, text, hint=AGAIN, **detail)
