"""What a remote call costs each process: processor time, writes and reads, one at a time and 64 in flight.

    python -m bench.nodes_cpu [SRC…]        with several source folders, they take turns: before and after a change

It is no comparison: it says where to look, on a busy machine too, because time in which others run does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.calls import IN_FLIGHT, at_once, one_at_a_time
from bench.harness import ROOT, Sample, started
from bench.nodes_bench import bare_echo, nats_server, remote_echo

CALLS = 1_000
BURST = 6_400


def counts(pid: int) -> tuple[float, int, int]:
    """Of a process so far: microseconds of processor time, writes, reads. Peeks at sockets without data count, too."""
    known = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return time.clock_gettime(~pid << 3 | 2) * 1e6, int(known["syscw"]), int(known["syscr"])


async def _cost(name: str, pids: dict[str, int], calls: int, work: Callable[[], Awaitable[object]]) -> Sample:
    before = {role: counts(pid) for role, pid in pids.items()}
    await work()
    sample = {}
    for role, pid in pids.items():
        for what, now, then in zip(("CPU us", "writes", "reads"), counts(pid), before[role], strict=True):
            sample[f"{name}: {role}: {what}"] = (now - then) / calls
    return sample


async def measure(kind: str, url: str, others: dict[str, int]) -> Sample:
    """Both ways of calling, from a caller in this process."""
    pids = {"caller": os.getpid(), **others}
    async with (remote_echo if kind == "node" else bare_echo)(url) as echo:
        await at_once(echo, CALLS)
        single = await _cost("one at a time", pids, CALLS, lambda: one_at_a_time(echo, CALLS))
        many = await _cost(f"{IN_FLIGHT} in flight", pids, BURST, lambda: at_once(echo, BURST))
    return single | many


def sample_of(kind: str, source: Path) -> Sample:
    """One caller and one answerer with the code in `source`, as fresh processes."""
    env = {**os.environ, "PYTHONPATH": f"{source}:{ROOT}"}
    with (
        nats_server() as (url, server),
        started([sys.executable, "-m", "bench.children.node", kind, url], env=env) as child,
    ):
        assert child.stdout is not None and child.stdout.readline().strip() == b"ready"
        others = {"node" if kind == "node" else "answerer": child.pid, "NATS server": server}
        command = [sys.executable, "-m", "bench.nodes_cpu", "--caller", json.dumps([kind, url, others])]
        answer = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True, timeout=180)
    sample: Sample = json.loads(answer.stdout)
    return sample


def report(name: str, rows: list[Sample]) -> None:
    """The medians of one contender."""
    print(name)
    for figure in rows[0]:
        values = [row[figure] for row in rows]
        print(f"  {figure:38}{statistics.median(values):8.2f}   ({min(values):.2f}..{max(values):.2f})")


def main() -> None:
    """Measure the sources in turns, and nats-py alone."""
    parser = argparse.ArgumentParser(prog="python -m bench.nodes_cpu", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sources", nargs="*", type=Path, default=[ROOT / "src"], metavar="SRC")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--caller", type=json.loads, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.caller:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(measure(*asked.caller))))
        return
    contenders = {"bare NATS": ("bare", ROOT / "src")}
    contenders |= {str(source): ("node", source.resolve()) for source in asked.sources}
    samples: dict[str, list[Sample]] = {name: [] for name in contenders}
    for _ in range(asked.rounds):
        for name, (kind, source) in contenders.items():
            samples[name].append(sample_of(kind, source))
    for name, measured in samples.items():
        report(name, measured)


if __name__ == "__main__":
    main()
