"""The processor time of an SDK plugin for a call, without any host: one call at a time, then 64 in flight.

    python -m bench.plugin_cpu [SRC…]       with several source folders, they take turns: before and after a change

It is no comparison: it says where to look, on a busy machine too, because time in which others run does not count.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from bench.calls import IN_FLIGHT
from bench.exchange import INITIALIZE, INITIALIZED
from bench.harness import CHILDREN, PAYLOAD, ROOT, Sample, apart, percentile, started

READ_SIZE = 65_536

GREETINGS = {
    "nexo": (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"nexo_version":"0.2.0"}}\n', b""),
    "mcp": (INITIALIZE, INITIALIZED),
}
"""The greeting of each contract, and the bytes after its answer."""

CALLS = {
    "nexo": b'{"jsonrpc":"2.0","id":%%d,"method":"tool.invoke","params":{"plugin_id":"bench_sdk",'
    b'"tool_name":"bench_sdk_echo","args":{"text":"%b"},"agent_id":null}}\n',
    "mcp": b'{"jsonrpc":"2.0","id":%%d,"method":"tools/call","params":{"name":"echo","arguments":{"text":"%b"}}}\n',
}


class Child:
    """A greeted plugin process."""

    def __init__(self, pid: int, writer: int, reader: int, contract: str) -> None:
        self.pid, self._writer, self._reader = pid, writer, reader
        self._call = CALLS[contract] % PAYLOAD.encode()
        self._last = 1
        greeting, after = GREETINGS[contract]
        os.write(writer, greeting)
        assert b'"result"' in os.read(reader, READ_SIZE)
        os.write(writer, after)

    def cpu_us(self) -> float:
        """Its processor time so far, of all threads, by the clock that Linux has for each process."""
        return time.clock_gettime(~self.pid << 3 | 2) * 1e6

    def waits(self) -> int:
        """How often a thread of it has waited for something."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/status")
        return sum(int(task.read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0]) for task in tasks)

    def one_at_a_time(self, calls: int) -> list[float]:
        """The time of each call, sorted."""
        times = []
        for _ in range(calls):
            began = time.perf_counter_ns()
            self._send(1)
            assert PAYLOAD.encode() in os.read(self._reader, READ_SIZE)
            times.append((time.perf_counter_ns() - began) / 1e3)
        return sorted(times)

    def at_once(self, calls: int) -> int:
        """How many reads it took; as many calls are sent as answers have come."""
        reads = answered = sent = 0
        while answered < calls:
            more = min(IN_FLIGHT - (sent - answered), calls - sent)
            self._send(more)
            sent += more
            answered += os.read(self._reader, READ_SIZE).count(b"\n")
            reads += 1
        return reads

    def _send(self, calls: int) -> None:
        ids = range(self._last + 1, self._last + 1 + calls)
        self._last += calls
        os.write(self._writer, b"".join(self._call % id for id in ids))


def measure(source: Path, contract: str, calls: int) -> Sample:
    """One process of the bench's plugin, with the SDK in `source`."""
    core = dict.fromkeys(("BENCH_CORE",) if (cores := apart()) else (), "".join(cores))
    env = {**os.environ, **core, "PYTHONPATH": str(source)}
    with started([sys.executable, "-P", str(CHILDREN / "nexo_sdk" / "plugin.py")], env=env) as process:
        assert process.stdin is not None and process.stdout is not None
        child = Child(process.pid, process.stdin.fileno(), process.stdout.fileno(), contract)
        start = child.cpu_us()
        child.one_at_a_time(calls // 10)
        cpu, waits = child.cpu_us(), child.waits()
        times = child.one_at_a_time(calls)
        single, waited = (child.cpu_us() - cpu) / calls, (child.waits() - waits) / calls
        child.at_once(calls)
        cpu = child.cpu_us()
        reads = child.at_once(3 * calls)
        return {
            "start ms": start / 1e3,
            "one at a time: CPU us": single,
            "waits": waited,
            "p50 us": percentile(times, 0.5),
            f"{IN_FLIGHT} in flight: CPU us": (child.cpu_us() - cpu) / (3 * calls),
            "answers per read": 3 * calls / reads,
        }


def report(source: Path, samples: Iterable[Sample]) -> None:
    """The medians of one source folder."""
    rows = list(samples)
    print(source)
    for figure in rows[0]:
        values = [row[figure] for row in rows]
        print(f"  {figure:28}{statistics.median(values):8.1f}   ({min(values):.1f}..{max(values):.1f})")


def main() -> None:
    """Measure the sources in turns."""
    parser = argparse.ArgumentParser(prog="python -m bench.plugin_cpu", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sources", nargs="*", type=Path, default=[ROOT / "src"], metavar="SRC")
    parser.add_argument("--contract", choices=CALLS, default="nexo")
    parser.add_argument("--calls", type=int, default=6_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    cores = os.sched_getaffinity(0)
    samples: dict[Path, list[Sample]] = {source.resolve(): [] for source in asked.sources}
    for _ in range(asked.rounds):
        for source, measured in samples.items():
            os.sched_setaffinity(0, cores)
            measured.append(measure(source, asked.contract, asked.calls))
    for source, measured in samples.items():
        report(source, measured)


if __name__ == "__main__":
    main()
