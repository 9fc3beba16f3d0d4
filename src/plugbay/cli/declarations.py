"""What a plugin's source declares, asked of a process of its own.

Owns how that process is started, how long it may take and the words for what can go wrong. The author's code never runs
in ours. Refuses to know what is done with the answer.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple

from plugbay.cli.exit_codes import Exit

PATIENCE = 20.0
"""Seconds for a source to get to its `plugin.run()`: ten times what a host of rune would wait."""

MAX_SOURCE = 4 << 20
"""Bytes of a source that is looked into."""

LAST_LINES = 6
"""Of a traceback: the error, and where it was raised."""

READ_SIZE = 65_536

USUAL_SOURCE = "plugin.py"


class Unusable(Exception):
    """There is no source, or it cannot be loaded. `lines` are the last that it said."""

    def __init__(
        self, message: str, *, hint: str = "", lines: tuple[str, ...] = (), status: int = Exit.INVALID
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.lines = lines
        self.status = status


class Declarations(NamedTuple):
    """What a source declares: for each contract, its files or the reason why there are none."""

    source: Path
    id: str
    version: str
    contracts: dict[str, dict[str, Any]]
    unchecked: list[str]
    """Annotations of tools that say nothing to anybody, so that what they are about is not checked."""
    misfits: list[str]
    """Defaults of tools that are not what their annotations say."""
    served: bool
    """Whether it calls `plugin.run()`."""


def source_of(path: Path) -> Path:
    """The file with the plugin in it: `path` itself, or the one in the folder; raises `Unusable`."""
    if path.is_file() and path.suffix == ".py":
        return path
    if not path.is_dir():
        what = f"{path} is no Python source" if path.exists() else f"{path} does not exist"
        raise Unusable(what, hint="name a plugin's folder, or its source", status=Exit.NOT_FOUND)
    if (path / USUAL_SOURCE).is_file():
        return path / USUAL_SOURCE
    found = [file for file in sorted(path.glob("*.py")) if _uses_the_sdk(file)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(file.name for file in found)
    what = f"several sources in {path} use plugbay.sdk: {names}" if found else f"no source in {path} uses plugbay.sdk"
    hint = "name the one that is the plugin" if found else "manifests are written for plugins of the Python SDK"
    raise Unusable(what, hint=hint, status=Exit.USAGE if found else Exit.NOT_FOUND)


def _uses_the_sdk(file: Path) -> bool:
    return file.is_file() and file.stat().st_size <= MAX_SOURCE and b"plugbay.sdk" in file.read_bytes()


def read(source: Path, patience: float = PATIENCE) -> Declarations:
    """What this source declares; raises `Unusable`."""
    with TemporaryFile() as said:  # which no child of its own can hold open
        status, out = _asked(source, patience, said)
        said.seek(0)
        if status != 0 and not out:
            raise _failed(source, said.read().decode("utf-8", "backslashreplace"))
    try:
        answer = json.loads(out)
        return Declarations(source, *(answer[key] for key in Declarations._fields[1:]))
    except (ValueError, KeyError, TypeError):
        text = f"{source} ended before anybody could ask what it declares"
        raise Unusable(text, hint="does it call os._exit()?") from None


def _where_plugbay_is() -> str:
    """For an interpreter that would look elsewhere, because it starts in the plugin's folder."""
    import plugbay

    ours = str(Path(plugbay.__file__).parents[1])
    return os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH", ""))))


def _asked(source: Path, patience: float, stderr: IO[bytes]) -> tuple[int, bytes]:
    """The status of the process and its answer; raises `Unusable` when that takes too long."""
    child = subprocess.Popen(
        [sys.executable, "-m", "plugbay.sdk.describe", source.name],
        cwd=source.parent,
        env={**os.environ, "PYTHONPATH": _where_plugbay_is(), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
    )
    assert child.stdout is not None
    with child.stdout as stdout:
        try:
            out = _all_of(stdout.fileno(), time.monotonic() + patience)
        finally:
            os.killpg(child.pid, signal.SIGKILL)  # before it is reaped, as its id is its own only until then
            status = child.wait()
    if out is None:
        hint = "what a module does when it is imported counts; move slow work into the handlers"
        text = f"{source} did not get to plugin.run() within {patience:g} s"
        raise Unusable(text, hint=hint, status=Exit.TIMEOUT)
    return status, out


def _all_of(stream: int, deadline: float) -> bytes | None:
    """Everything up to its end; None when that does not come in time."""
    parts = [b""]
    while select.select([stream], [], [], max(deadline - time.monotonic(), 0.0))[0]:
        parts.append(os.read(stream, READ_SIZE))
        if not parts[-1]:
            return b"".join(parts)
    return None


def _failed(source: Path, said: str) -> Unusable:
    lines = tuple(_of_the_author(line for line in said.splitlines() if line.strip()))[-LAST_LINES:]
    last = lines[-1] if lines else "it ended without a word"
    hint = "the source is loaded as a host would load it; run plugbay where its modules are installed"
    missing = last.startswith("ModuleNotFoundError")
    return Unusable(f"{source} cannot be loaded: {last}", hint=hint if missing else "", lines=lines[:-1])


def _of_the_author(lines: Iterable[str]) -> Iterator[str]:
    """A traceback without the frames of whoever loads the source: what counts is the author's own line."""
    import plugbay.sdk

    foreign = ('  File "<frozen runpy>', f'  File "{Path(plugbay.sdk.__file__).parent}{os.sep}')
    hidden = False
    for line in lines:
        hidden = line.startswith(foreign) if line.startswith('  File "') else hidden and line.startswith("   ")
        if not hidden:
            yield line
