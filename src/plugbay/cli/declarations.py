"""Reads the declarations of a Python plugin by loading its source in a separate process, with a timeout.

The author's code must never run in this process.
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

LOAD_TIMEOUT_S = 20.0
"""For a source to reach its `plugin.run()`: ten times the handshake timeout of rune."""

MAX_SOURCE = 4 << 20
"""Bytes; a larger file is not read."""

LAST_LINES = 6
"""Lines of a traceback that are kept: the error and where it was raised."""

READ_SIZE = 65_536

DEFAULT_SOURCE = "plugin.py"


class Unusable(Exception):
    """There is no source, or it cannot be loaded. `lines` are the last lines of its stderr."""

    def __init__(
        self, message: str, *, hint: str = "", lines: tuple[str, ...] = (), status: int = Exit.INVALID
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.lines = lines
        self.status = status


class Declarations(NamedTuple):
    """The declarations of a source: for each contract, its files or the reason why there are none."""

    source: Path
    id: str
    version: str
    contracts: dict[str, dict[str, Any]]
    unchecked: list[str]
    """Annotations of tools without a schema, whose values are not validated."""
    misfits: list[str]
    """Defaults of tools that do not match their annotations."""
    served: bool
    """Whether the source calls `plugin.run()`."""


def find_source(path: Path) -> Path:
    """The plugin's source: `path` itself, or the file in the folder; raises `Unusable`."""
    if path.is_file() and path.suffix == ".py":
        return path
    if not path.is_dir():
        what = f"{path} is no Python source" if path.exists() else f"{path} does not exist"
        raise Unusable(what, hint="name a plugin's folder, or its source", status=Exit.NOT_FOUND)
    if (path / DEFAULT_SOURCE).is_file():
        return path / DEFAULT_SOURCE
    found = [file for file in sorted(path.glob("*.py")) if _uses_the_sdk(file)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(file.name for file in found)
    what = f"several sources in {path} use plugbay.sdk: {names}" if found else f"no source in {path} uses plugbay.sdk"
    hint = "name the one that is the plugin" if found else "manifests are written for plugins of the Python SDK"
    raise Unusable(what, hint=hint, status=Exit.USAGE if found else Exit.NOT_FOUND)


def _uses_the_sdk(file: Path) -> bool:
    return file.is_file() and file.stat().st_size <= MAX_SOURCE and b"plugbay.sdk" in file.read_bytes()


def read(source: Path, timeout: float = LOAD_TIMEOUT_S) -> Declarations:
    """Load a source and return its declarations; raises `Unusable`."""
    with TemporaryFile() as said:  # not a pipe, which a grandchild could hold open
        status, out = _run_source(source, timeout, said)
        said.seek(0)
        if status != 0 and not out:
            raise _load_failure(source, said.read().decode("utf-8", "backslashreplace"))
    try:
        answer = json.loads(out)
        return Declarations(source, *(answer[key] for key in Declarations._fields[1:]))
    except (ValueError, KeyError, TypeError):
        text = f"{source} exited before its declarations could be read"
        raise Unusable(text, hint="does it call os._exit()?") from None


def _python_path() -> str:
    """PYTHONPATH with this plugbay first: the child starts in the plugin's folder and would search elsewhere."""
    import plugbay

    ours = str(Path(plugbay.__file__).parents[1])
    return os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH", ""))))


def _run_source(source: Path, timeout: float, stderr: IO[bytes]) -> tuple[int, bytes]:
    """Run the source; return the exit status and stdout. Raises `Unusable` after the timeout."""
    child = subprocess.Popen(
        [sys.executable, "-m", "plugbay.sdk.describe", source.name],
        cwd=source.parent,
        env={**os.environ, "PYTHONPATH": _python_path(), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
    )
    assert child.stdout is not None
    with child.stdout as stdout:
        try:
            out = _read_all(stdout.fileno(), time.monotonic() + timeout)
        finally:
            os.killpg(child.pid, signal.SIGKILL)  # before it is reaped: afterwards its pid may be reused
            status = child.wait()
    if out is None:
        hint = "what a module does when it is imported counts; move slow work into the handlers"
        text = f"{source} did not get to plugin.run() within {timeout:g} s"
        raise Unusable(text, hint=hint, status=Exit.TIMEOUT)
    return status, out


def _read_all(stream: int, deadline: float) -> bytes | None:
    """Read to the end of file; None when the deadline passes first."""
    parts = [b""]
    while select.select([stream], [], [], max(deadline - time.monotonic(), 0.0))[0]:
        parts.append(os.read(stream, READ_SIZE))
        if not parts[-1]:
            return b"".join(parts)
    return None


def _load_failure(source: Path, said: str) -> Unusable:
    lines = tuple(_author_frames(line for line in said.splitlines() if line.strip()))[-LAST_LINES:]
    last = lines[-1] if lines else "it ended without a word"
    hint = "the source is loaded as a host would load it; run plugbay where its modules are installed"
    missing = last.startswith("ModuleNotFoundError")
    return Unusable(f"{source} cannot be loaded: {last}", hint=hint if missing else "", lines=lines[:-1])


def _author_frames(lines: Iterable[str]) -> Iterator[str]:
    """A traceback without the frames of the loader, so that the author's own lines remain."""
    import plugbay.sdk

    foreign = ('  File "<frozen runpy>', f'  File "{Path(plugbay.sdk.__file__).parent}{os.sep}')
    hidden = False
    for line in lines:
        hidden = line.startswith(foreign) if line.startswith('  File "') else hidden and line.startswith("   ")
        if not hidden:
            yield line
