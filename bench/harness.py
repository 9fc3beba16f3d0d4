"""Shared by all comparisons: fresh processes, interleaved rounds, ratios per round, facts about the machine.

One measurement is one new Python process that runs one contender and prints one JSON object. Contenders take turns, so
other load on the machine slows all of them; ratios are formed inside a round and only then summarised.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CHILDREN = ROOT / "bench" / "children"

PAYLOAD = "x" * 100
"""The 100 bytes that are echoed, everywhere."""

PROCESS_SECONDS = 180.0
"""No single measurement takes longer; one that does is broken, not slow."""

Sample = dict[str, float]
Contender = Callable[[dict[str, Any]], Sample]


class BenchFailed(Exception):
    """A contender could not be measured: an error, as opposed to a missed goal."""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for on the command line."""

    repeats: int
    quick: bool
    progress: Callable[[str], None]

    def size(self, full: int, quick: int) -> int:
        """How many calls, or children, one process measures."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Entry:
    """One contender of a comparison: its name, its label, and its arguments."""

    key: str
    label: str
    params: dict[str, Any] = field(default_factory=dict)
    needs: str = ""
    """A module, or an absolute path, without which it is left out."""

    @property
    def available(self) -> bool:
        if self.needs.startswith("/"):
            return Path(self.needs).exists()
        return not self.needs or importlib.util.find_spec(self.needs) is not None


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over the processes it was measured in."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def to_json(self) -> dict[str, float]:
        return {"median": self.median, "min": self.low, "max": self.high}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the first table: a figure, and the goal it is held against, if there is one."""

    what: str
    measured: Spread | None
    at_most: float | None = None
    at_least: float | None = None
    unit: str = "x"
    group: str = ""
    """The column of a table that has one column per group instead of goals."""

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        if self.at_most is not None:
            return "met" if self.measured.median <= self.at_most else "missed"
        if self.at_least is not None:
            return "met" if self.measured.median >= self.at_least else "missed"
        return ""

    def to_json(self) -> dict[str, Any]:
        return {
            "what": f"{self.group}: {self.what}" if self.group else self.what,
            "measured": None if self.measured is None else self.measured.to_json(),
            "unit": self.unit,
            "at_most": self.at_most,
            "at_least": self.at_least,
            "verdict": self.verdict,
        }


@dataclass(frozen=True, slots=True)
class Column:
    """One absolute figure of every contender; `scale` turns it into the heading's unit."""

    field: str
    heading: str
    scale: float = 1.0
    digits: int = 1


class Rounds:
    """The samples of all contenders, round by round."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = list(entries)
        self.samples: dict[str, list[Sample]] = {entry.key: [] for entry in entries}

    def spread(self, key: str, figure: str) -> Spread | None:
        """One contender's figure; None when it was not measured."""
        values = [sample[figure] for sample in self.samples.get(key, ()) if figure in sample]
        return Spread.of(values) if values else None

    def ratio(self, key: str, other: str, figure: str, other_figure: str = "") -> Spread | None:
        """`key` in units of `other`, formed in each round; None when either was not measured."""
        pairs = zip(self.samples.get(key, ()), self.samples.get(other, ()), strict=False)
        values = [mine[figure] / theirs[other_figure or figure] for mine, theirs in pairs]
        return Spread.of(values) if values else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything one comparison found."""

    name: str
    title: str
    findings: list[Finding]
    columns: list[Column]
    rounds: Rounds
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "findings": [finding.to_json() for finding in self.findings],
            "contenders": {
                entry.key: {"label": entry.label, "samples": self.rounds.samples[entry.key]}
                for entry in self.rounds.entries
            },
            "notes": self.notes,
        }


def interleave(module: str, entries: Sequence[Entry], options: Options) -> Rounds:
    """Every contender once per round, each time in a new process; another one begins each round."""
    usable = [entry for entry in entries if entry.available]
    rounds = Rounds(usable)
    for number in range(options.repeats):
        turn = number % len(usable)
        for entry in usable[turn:] + usable[:turn]:
            options.progress(f"{module.rpartition('.')[2]}: round {number + 1}/{options.repeats}: {entry.label}")
            rounds.samples[entry.key].append(measure(module, entry))
    return rounds


def missing(entries: Sequence[Entry]) -> list[str]:
    """A note for every contender that is left out."""
    return [f"{entry.label}: left out, {entry.needs} is not installed" for entry in entries if not entry.available]


def measure(module: str, entry: Entry) -> Sample:
    """One contender in one new process."""
    command = [sys.executable, "-m", module, entry.key, json.dumps(entry.params)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=PROCESS_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise BenchFailed(f"{entry.label}: no result within {PROCESS_SECONDS:g} s") from None
    if done.returncode != 0:
        tail = "\n".join(done.stderr.decode(errors="replace").splitlines()[-12:])
        raise BenchFailed(f"{entry.label}: exit status {done.returncode}\n{tail}")
    sample: Sample = json.loads(done.stdout.splitlines()[-1])
    return sample


def serve(contenders: dict[str, Contender]) -> None:
    """The other side of `measure`: run the contender named on the command line and print its sample."""
    key, params = sys.argv[1:3]
    print(json.dumps(contenders[key](json.loads(params))))


# Inside a measurement.


def percentile(sorted_values: Sequence[float], share: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]


class Stopwatch:
    """Wall and CPU time of this process, per call."""

    __slots__ = ("_cpu", "_wall")

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._wall = time.perf_counter()

    def per_second(self, calls: int) -> float:
        return calls / (time.perf_counter() - self._wall)

    def cpu_us(self, calls: int) -> float:
        return (time.process_time() - self._cpu) * 1e6 / calls


def apart() -> list[str]:
    """Put this process on one core; the argument that makes its child take another, where there is one.

    Left to itself the scheduler chooses anew in every run, and a call costs 8 or 25 us by that choice alone.
    """
    if not hasattr(os, "sched_setaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0), reverse=True)
    others = [core for core in cores[1:] if core not in _siblings(cores[0])] or cores[1:]
    if not others:
        return []
    os.sched_setaffinity(0, {cores[0]})
    return [str(others[0])]


def _siblings(core: int) -> set[int]:
    """The cores that are the same piece of hardware."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text()
        bounds = [part.partition("-") for part in text.strip().split(",")]
        return {n for low, _, high in bounds for n in range(int(low), int(high or low) + 1)}
    except (OSError, ValueError):
        return set()


@contextlib.contextmanager
def started(argv: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A child with unbuffered pipes, in a session of its own like the children of a host; gone afterwards."""
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, bufsize=0, start_new_session=True, **options) as child:
        try:
            yield child
        finally:
            child.kill()


# The machine.


def machine_facts() -> dict[str, Any]:
    """What a figure must be read with."""
    now = datetime.datetime.now(datetime.UTC)
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "load_at_start": round(os.getloadavg()[0], 2),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": {name: _version(name) for name in ("plugbay", "msgspec", "uvloop", "mcp")},
        "commit": _commit(),
        "date": now.isoformat(timespec="seconds"),
    }


def _cpu_model() -> str:
    """x86 names itself in /proc; elsewhere `lscpu` knows the implementer's tables."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    for line in _output("lscpu").splitlines():
        if line.startswith("Model name:"):
            return f"{line.partition(':')[2].strip()} ({platform.machine()})"
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    commit = _output("git", "rev-parse", "--short=12", "HEAD").strip()
    if not commit:
        return "unknown"
    return f"{commit} with changes" if _output("git", "status", "--porcelain").strip() else commit


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""
