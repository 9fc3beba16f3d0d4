"""Pushes packages to and pulls them from any OCI registry.

    manifest   artifactType application/vnd.vai.plugin.package.v1, config {}
    layer 0    the archive
    layer 1    its signature, when it has one

A registry is not trusted: every byte is checked against the requested digest and size while it arrives. This is our own
client because oras checks no digest, limits no size, and takes two minutes to report an unreachable registry.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import msgspec
from pydantic import BaseModel, Field

from plugbay.packages import documents
from plugbay.packages.archive import SUFFIX, signature_path
from plugbay.packages.connection import CHUNK, Connection
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.reference import Reference
from plugbay.packages.rules import DEFAULT_LIMITS, Limits
from plugbay.packages.store import Digest

Progress = Callable[[str, int, int], None]
"""Called with name, bytes so far, total bytes."""

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
ARTIFACT_TYPE = "application/vnd.vai.plugin.package.v1"
ARCHIVE_TYPE = "application/vnd.vai.plugin.package.v1.tar+gzip"
SIGNATURE_TYPE = "application/vnd.vai.plugin.signature.v1+json"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
EMPTY = b"{}"

MAX_MANIFEST = 1 << 20
"""Size limit; our manifests have about 800 bytes."""


class Descriptor(BaseModel):
    """Descriptor of a blob."""

    media_type: str = Field(alias="mediaType")
    digest: Digest
    size: int = Field(ge=0)


class Manifest(BaseModel):
    """An image manifest; other fields are ignored."""

    schema_version: Literal[2] = Field(alias="schemaVersion")
    media_type: Literal["application/vnd.oci.image.manifest.v1+json"] = Field(alias="mediaType")
    layers: list[Descriptor]

    def layer(self, media_type: str) -> Descriptor | None:
        return next((layer for layer in self.layers if layer.media_type == media_type), None)


class Pushed(NamedTuple):
    """A pushed artifact."""

    reference: Reference
    """With the digest of the manifest, for pulling."""
    archive_digest: str


class Pulled(msgspec.Struct, frozen=True):
    """A pulled and verified archive."""

    reference: Reference
    archive: Path
    archive_digest: str
    size: int
    signature: Path | None


def push(
    connection: Connection,
    reference: Reference,
    archive: Path,
    facts: Mapping[str, str],
    progress: Progress = lambda what, done, total: None,
) -> Pushed:
    """Push an archive, and the signature beside it, under a tag. A tag with another archive is never overwritten."""
    beside = signature_path(archive)
    blobs = [(archive.name, archive.read_bytes()), *([(beside.name, beside.read_bytes())] if beside.is_file() else [])]
    kinds = (ARCHIVE_TYPE, SIGNATURE_TYPE)
    layers = [_describe(kind, data) for kind, (_, data) in zip(kinds, blobs, strict=False)]
    _require_unused_tag(connection, reference, layers[0]["digest"])
    for layer, (name, data) in zip(layers, blobs, strict=True):
        _upload(connection, layer, data, name, progress)
    config = _describe(EMPTY_TYPE, EMPTY)
    _upload(connection, config, EMPTY, "config", progress)
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": ARTIFACT_TYPE,
        "config": config,
        "layers": layers,
        "annotations": dict(facts),
    }
    data = documents.compact(document).encode()
    connection.put_manifest(reference.wanted, MANIFEST_TYPE, data)
    return Pushed(reference.pinned(_digest(data)), layers[0]["digest"])


def _describe(media_type: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(data), "size": len(data)}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _require_unused_tag(connection: Connection, reference: Reference, digest: str) -> None:
    """Refuse to replace the archive under a tag; its signature may change."""
    data = connection.manifest(reference, MANIFEST_TYPE, MAX_MANIFEST)
    if data is None:
        return
    found = documents.read(Manifest, data)
    held = None if isinstance(found, list) else found.layer(ARCHIVE_TYPE)
    if held is None or held.digest != digest:
        text = f"{reference} is taken: it holds {held.digest if held else 'something else'}"
        hint = "a version must not change; use a new version number"
        raise PackageRefused(Reason.VERSION_CONFLICT, text, hint=hint)


def _upload(connection: Connection, descriptor: Mapping[str, Any], data: bytes, what: str, progress: Progress) -> None:
    """Upload a blob, unless the registry has it."""
    size = len(data)

    def pieces() -> Iterator[bytes]:
        for start in range(0, size, CHUNK):
            yield data[start : start + CHUNK]
            progress(what, min(start + CHUNK, size), size)

    if connection.has_blob(descriptor["digest"]):
        progress(what, size, size)
    else:
        connection.put_blob(descriptor["digest"], size, pieces)


def pull(
    connection: Connection,
    reference: Reference,
    out: Path,
    limits: Limits = DEFAULT_LIMITS,
    progress: Progress = lambda what, done, total: None,
) -> Pulled:
    """Pull an archive and its signature. `out` is a file, or a folder for a file named after the reference."""
    data = connection.manifest(reference, MANIFEST_TYPE, MAX_MANIFEST)
    if data is None:
        text = f"there is no {reference}"
        raise PackageRefused(Reason.NOT_FOUND, text, hint="check the tag or the digest")
    digest = _digest(data)
    if reference.digest not in {None, digest}:
        text = f"{reference.registry} sent a manifest with the digest {digest}instead of {reference.digest}"
        raise PackageRefused(Reason.DIGEST_MISMATCH, text, expected=reference.digest, found=digest)
    manifest = _manifest(data, reference)
    archive, signature = manifest.layer(ARCHIVE_TYPE), manifest.layer(SIGNATURE_TYPE)
    if archive is None:
        raise PackageRefused(Reason.BAD_ARCHIVE, f"{reference} is not a package of a plugin")
    path = out / _file_name(reference, digest) if out.is_dir() else out
    _download(connection, archive, path, limits.packed, progress)
    beside = signature_path(path)
    beside.unlink(missing_ok=True)  # belongs to an archive that was here before
    if signature is not None:
        _download(connection, signature, beside, documents.MAX_BYTES, progress)
    kept = beside if signature else None
    return Pulled(reference.pinned(digest), path, archive.digest, archive.size, kept)


def _manifest(data: bytes, reference: Reference) -> Manifest:
    found = documents.read(Manifest, data)
    if isinstance(found, list):
        text = f"{reference} is not the manifest of a package: {found[0]}"
        raise PackageRefused(Reason.BAD_ARCHIVE, text)
    return found


def _file_name(reference: Reference, digest: str) -> str:
    name = reference.repository.rpartition("/")[2]
    return f"{name}-{reference.tag or digest.removeprefix('sha256:')[:12]}{SUFFIX}"


def _download(connection: Connection, blob: Descriptor, path: Path, limit: int, progress: Progress) -> None:
    """Download a blob; it gets its name once its digest is verified."""
    if blob.size > limit:
        text = f"{path.name} would have {blob.size:,} bytes; at most {limit:,} are allowed"
        raise PackageRefused(Reason.TOO_LARGE, text, limit=limit)
    temporary = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with open(temporary, "xb") as file, connection.blob(blob.digest) as pieces:
            found = _copy(pieces, file, blob.size, lambda done: progress(path.name, done, blob.size))
        if found != blob.digest:
            text = f"the download of {path.name} has the digest {found} instead of {blob.digest}"
            raise PackageRefused(Reason.DIGEST_MISMATCH, text, expected=blob.digest, found=found)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _copy(pieces: Iterator[bytes], file: BinaryIO, size: int, progress: Callable[[int], None]) -> str:
    """Copy the bytes and return their digest; stops when there are more than announced."""
    digest, done = hashlib.sha256(), 0
    for piece in pieces:
        done += len(piece)
        if done > size:
            text = f"the registry sends more than the {size:,} bytes it announced"
            raise PackageRefused(Reason.DIGEST_MISMATCH, text)
        digest.update(piece)
        file.write(piece)
        progress(done)
    return f"sha256:{digest.hexdigest()}"
