"""The restart of a server after SIGKILL, beside the floor: a bare interpreter that imports the same libraries.

Wall time depends on the load of the machine; processor time and the ratio of both runs do not, or much less.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import httpx2

from tests.load.figures import Figures
from tests.support.patience import PATIENCE

LIBRARIES = (
    "typer, fastapi, uvicorn, uvloop, sqlalchemy.ext.asyncio, aiosqlite, structlog, msgspec, "
    "cryptography.hazmat.primitives.asymmetric.ed25519"
)
"""What a server cannot do without; loaded before it is ready."""

FLOOR = f"import {LIBRARIES}; print('{{}}', flush=True); import sys; sys.stdin.read()"


def restart(folder: Path, *, times: int = 5) -> Figures:
    """A first start, which makes the database, and then so many restarts of a killed server."""
    homes = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("STATE", "DATA", "CONFIG", "CACHE")}
    serve = [sys.executable, "-m", "plugbay", "serve", "--listen", "127.0.0.1:0", "--json"]
    floor = [sys.executable, "-c", FLOOR]
    first = _start(serve, folder, homes)
    taken = [(_start(serve, folder, homes), _start(floor, folder, homes)) for _ in range(times)]
    served, bare = zip(*taken, strict=True)
    rows = {"first": first, "restart": _medians(served), "imports": _medians(bare)}
    ratios = {f"{name}_ratio": median(ours[name] / theirs[name] for ours, theirs in taken) for name in first}
    return Figures(f"restart of a killed server, median of {times}", {**rows, "of imports": ratios})


def _start(command: list[str], folder: Path, env: dict[str, str]) -> dict[str, float]:
    """Seconds until the program prints its first line, of the clock and of the processor; then it is killed."""
    began = time.perf_counter()
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as program:
        try:
            assert program.stdout is not None
            facts = json.loads(program.stdout.readline())
            seconds = time.perf_counter() - began
            fields = Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()
            if "url" in facts:
                httpx2.get(f"{facts['url']}/readyz", timeout=PATIENCE).raise_for_status()
        finally:
            program.send_signal(signal.SIGKILL)
    return {"seconds": seconds, "cpu_s": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")}


def _medians(samples: tuple[dict[str, float], ...]) -> dict[str, float]:
    return {name: median(sample[name] for sample in samples) for name in samples[0]}
