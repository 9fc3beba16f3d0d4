"""Files in the scratch folder of an invocation, by reference: `{path, media_type, size_bytes, sha256}`.

A path is relative to the folder and never leaves it. Owns how references are read and made. Refuses to know what the
files are for.
"""

from __future__ import annotations

import os
import stat

from plugbay.sdk.errors import HandlerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

CHUNK = 1 << 20
"""Bytes of a file that are looked at in one go."""


class ArtifactInvalid(HandlerError):
    """A file is not what its reference says, or not where references may lead."""

    kind = "artifact_invalid"


def read_artifact(scratch: str | None, ref: Mapping[str, Any]) -> bytes:
    """The bytes that a reference stands for; raises `ArtifactInvalid` when they are others."""
    path, size = ref.get("path"), ref.get("size_bytes")
    if scratch is None or not isinstance(path, str):
        raise ArtifactInvalid("there is a reference, but no file that it could be of")
    with _opened(scratch, path) as file:
        if os.fstat(file.fileno()).st_size != size:
            raise ArtifactInvalid(f"{path} does not have the {size} bytes that its reference says")
        data: bytes = file.read()
    if _sha256(data).hexdigest() != ref.get("sha256"):
        raise ArtifactInvalid(f"{path} does not have the sha256 that its reference says")
    return data


def refer_to(scratch: str | None, path: str | os.PathLike[str]) -> dict[str, Any]:
    """A reference to a file in the folder, given by its path in there or by its whole path."""
    if scratch is None:
        raise ArtifactInvalid("this call has no scratch folder, so there can be no artifacts")
    inside = os.path.relpath(os.path.join(scratch, path), scratch)
    digest, size = _sha256(), 0
    with _opened(scratch, inside) as file:
        while data := file.read(CHUNK):
            digest.update(data)
            size += len(data)
    return {"path": inside, "media_type": _media_type(inside), "size_bytes": size, "sha256": digest.hexdigest()}


def _opened(scratch: str, path: str) -> Any:
    """The plain file at a path that stays in the folder, whatever links lie there."""
    root = os.path.realpath(scratch)
    whole = os.path.join(root, path)
    if os.path.isabs(path) or os.path.realpath(whole) != whole:
        raise ArtifactInvalid(f"{path} leads out of the scratch folder, or is written in a roundabout way")
    try:
        descriptor = os.open(whole, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ArtifactInvalid(f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ArtifactInvalid(f"{path} is no plain file")
    return os.fdopen(descriptor, "rb")


def _sha256(data: bytes = b"") -> Any:
    from hashlib import sha256

    return sha256(data)


def _media_type(path: str) -> str:
    from mimetypes import guess_type

    return guess_type(path)[0] or "application/octet-stream"
