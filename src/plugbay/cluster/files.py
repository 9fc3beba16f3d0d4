"""The files of a call: what its plugin finds in its scratch folder on the node, and the artifacts that it leaves there.

The gateway has a scratch folder of the same call, so everything before and after the call is as it is with a plugin of
this machine. Files travel behind the operation and behind the value, in the order of the `File`s in the head.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugbay.cluster.envelope import File
from plugbay.host.invocations import artifacts
from plugbay.model.operations import Compact
from plugbay.wire.json_gate import Malformed

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp

Contents = list[tuple[str, bytes]]
"""Paths below a scratch folder, with the data of the files."""


class CallFiles:
    """The files of one call, as the gateway has them."""

    __slots__ = ("_folder", "returned", "sent")

    def __init__(self, folder: Path, sent: Contents) -> None:
        self._folder = folder
        self.sent = sent
        self.returned: Contents = []
        """What the node has answered with."""

    async def keep(self) -> None:
        """Write the returned files into the scratch folder; raises OSError."""
        if self.returned:
            await asyncio.to_thread(_write_all, self._folder, self.returned)


async def files_of(op: PluginOp | None) -> CallFiles | None:
    """The files that go with an operation; None for one without a scratch folder. Raises OSError."""
    name = (context_of(op) or {}).get("scratch_dir")
    if name is None:
        return None
    folder, sent = Path(name), []
    if isinstance(op, Compact) and op.request["source"]["projection"]["transport"] == "artifact":
        path = op.request["source"]["projection"]["artifact"]["path"]
        sent = [(path, await asyncio.to_thread((folder / path).read_bytes))]
    return CallFiles(folder, sent)


def context_of(op: Any) -> dict[str, Any] | None:
    """The context object of an invocation."""
    context = getattr(op, "context", None)
    inner = context.get("context") if isinstance(context, dict) else None
    return inner if isinstance(inner, dict) else None


def join(value: bytes, files: Contents) -> tuple[tuple[File, ...], bytes]:
    """The `File`s of a head, and the body."""
    return tuple(File(path, len(data)) for path, data in files), b"".join((value, *(data for _, data in files)))


def split(body: bytes, heads: Sequence[File]) -> tuple[bytes, Contents]:
    """The other way; raises `Malformed` for a body that is shorter than its files."""
    at = len(body) - sum(head.size for head in heads)
    if at < 0:
        raise Malformed("the body is shorter than its files")
    value, files = body[:at], []
    for head in heads:
        files.append((head.path, body[at : at + head.size]))
        at += head.size
    return value, files


async def write(folder: Path, files: Contents) -> None:
    """Put files into the scratch folder of a plugin; raises OSError."""
    await asyncio.to_thread(_write_all, folder, files)


async def artifacts_of(folder: Path, result: Any, most: int) -> Contents:
    """The files that a result names, at most `most` bytes. One that cannot be read is left out: the gateway reports it.

    Raises `artifacts.BadArtifact` when they are too large.
    """
    references = result.get("artifacts") if isinstance(result, dict) else None
    return await asyncio.to_thread(artifacts.read, folder, references, most) if references else []


def _write_all(folder: Path, files: Contents) -> None:
    for path, data in files:
        artifacts.put(folder, path, data)
