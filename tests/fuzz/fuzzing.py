"""Searches for inputs that break the promises of a target, for some time, and reports the search."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

CORPUS = Path(__file__).parent / "corpus"
ROOT = Path(__file__).parents[2]

UNIT_SECONDS = 60
"""Time for one input. The slowest takes milliseconds; the rest is for a busy machine."""
MEMORY_MIB = 2048
MAX_INPUT = 16 << 10
MAX_WORDS = 400

FINDINGS = ("crash-", "timeout-", "oom-", "leak-")
_STATUS = re.compile(r"^#(\d+)\s.*?cov: (\d+) ft: (\d+)", re.MULTILINE)
_WORD = re.compile(rb"[A-Za-z0-9_./:-]{3,24}")


class Report(NamedTuple):
    """One run of one target."""

    target: str
    executions: int
    edges: int
    features: int
    findings: list[Path]
    output: str
    """All that it wrote, where it did not end well."""

    @property
    def passed(self) -> bool:
        return not self.findings and not self.output

    def __str__(self) -> str:
        found = f"{len(self.findings)} findings" if self.findings else "no findings" if self.passed else "FAILED"
        return f"{self.target}: {self.executions:,} executions, {self.edges} edges, {self.features} features, {found}"


def has_atheris() -> bool:
    return importlib.util.find_spec("atheris") is not None


def seeds(target: str) -> list[Path]:
    """The corpus of a target: examples, and the inputs of earlier findings."""
    return sorted((CORPUS / target).iterdir())


def fuzz(target: str, seconds: float, work: Path, findings: Path, corpus: str = "") -> Report:
    """Run a target on its corpus, or on that of another. Inputs that reach new code go to `work`, those that break a
    promise to `findings`.
    """
    corpus = corpus or target
    work.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    before = set(findings.iterdir())
    dictionary = work.parent / f"{target}.dict"
    dictionary.write_bytes(b"".join(b'"%b"\n' % word for word in words(corpus)))
    options = {
        "max_total_time": max(1, round(seconds)),
        "timeout": UNIT_SECONDS,
        "rss_limit_mb": MEMORY_MIB,
        "max_len": MAX_INPUT,
        "dict": dictionary,
        "artifact_prefix": f"{findings}/",
        "print_final_stats": 1,
    }
    flags = [f"-{name}={value}" for name, value in options.items()]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.engine", target, *flags, work, CORPUS / corpus],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
    )
    output = ended.stdout + ended.stderr
    executions, edges, features = map(int, ([("0", "0", "0"), *_STATUS.findall(output)])[-1])
    new = [path for path in findings.iterdir() if path not in before and path.name.startswith(FINDINGS)]
    problem = output if ended.returncode or not executions else ""
    return Report(target, executions, edges, features, sorted(new), problem)


def words(corpus: str) -> list[bytes]:
    """The words of a corpus, which a search puts into its inputs."""
    return sorted({word for path in seeds(corpus) for word in _WORD.findall(path.read_bytes())})[:MAX_WORDS]
