"""One host with many confined plugins: each is started, called twice and stopped.

A call that fails, a process that is left, a descriptor that stays open and a control group that stays behind are
problems. Memory is counted as PSS, which shares a page among all processes that map it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import time
from contextlib import suppress
from pathlib import Path

from plugbay import Host
from plugbay.process.limits import raise_open_files
from tests.load.figures import Figures
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import PATIENCE

SANDBOX = "[plugin.sandbox]\nenabled = true\n"
CALL_SECONDS = 10 * PATIENCE
"""The last of many plugins waits for the starts of all others."""


def fleet(folder: Path, *, plugins: int = 400) -> Figures:
    """The whole life of so many plugins in a host of this process."""
    folder.chmod(0o755)  # confined plugins are other users
    names = [f"p{number:03d}" for number in range(plugins)]
    for name in names:
        write_nexo_plugin(folder / "plugins", name, tools=["echo"], more=SANDBOX)
    raise_open_files()
    return asyncio.run(_live(folder, names))


async def _live(folder: Path, names: list[str]) -> Figures:
    host = Host.load(folder / "plugins", grant_all=True, state_dir=folder / "state")
    problems: list[str] = []
    start: dict[str, float] = {}
    async with host:
        before = _own_usage()
        began, cpu = time.perf_counter(), time.process_time()
        problems += await _call_all(host, names)
        start = {"seconds": time.perf_counter() - began, "host_cpu_s": time.process_time() - cpu}
        running = _own_usage()
        mine = _descendants(os.getpid())
        start |= {
            "processes": len(mine),
            "host_rss_kib_each": (running["rss_kib"] - before["rss_kib"]) / len(names),
            "pss_kib_each": sum(map(_pss_kib, mine)) / len(names),
            "descriptors_each": (running["descriptors"] - before["descriptors"]) / len(names),
            "threads": running["threads"],
            "processes_cpu_s": sum(map(_cpu_seconds, mine)),
        }
        confined = sum(status.confinement.policy is not None for status in host.plugins())
        if confined != len(names):
            problems.append(f"{len(names) - confined} plugins are not confined")
        began = time.perf_counter()
        problems += await _call_all(host, names)
        call = {"seconds": time.perf_counter() - began}
        began = time.perf_counter()
    left = [pid for pid, born in mine.items() if _born(pid) == born]
    stop = {"seconds": time.perf_counter() - began, "processes_left": len(left)}
    if left or len(mine) < len(names):
        problems.append(f"of {len(mine)} processes, {len(left)} are left: {left[:10]}")
    gc.collect()
    after = _own_usage()
    stop["descriptors_left"] = max(0, after["descriptors"] - before["descriptors"])
    if stop["descriptors_left"]:
        problems.append(f"{stop['descriptors_left']} descriptors are left")
    return Figures(f"{len(names)} confined plugins", {"start": start, "call": call, "stop": stop}, problems)


async def _call_all(host: Host, names: list[str]) -> list[str]:
    given = {"text": "x" * 100}
    calls = [host.attempt(f"{name}_echo", given, timeout=CALL_SECONDS) for name in names]
    results = await asyncio.gather(*calls)
    return [
        f"{name}: {result.failure or result.value()}"
        for name, result in zip(names, results, strict=True)
        if result.failure is not None or result.value() != given
    ]


def _own_usage() -> dict[str, int]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rss_kib": pages * resource.getpagesize() // 1024,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
    }


def _descendants(pid: int) -> dict[int, str]:
    """All processes below a process, with the moments of their start, because process ids are used again."""
    found: dict[int, str] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # a thread that has ended
            for child in map(int, (task / "children").read_text().split()):
                found |= {child: _born(child), **_descendants(child)}
    return found


def _born(pid: int) -> str:
    """The moment of its start; empty if it has ended."""
    with suppress(OSError):
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state == "Z" else fields[18]
    return ""


def _pss_kib(pid: int) -> int:
    with suppress(OSError, StopIteration):  # it has ended
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1])
    return 0


def _cpu_seconds(pid: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0
