"""A search for broken promises guided by coverage, for machines without atheris. Slower: it traces each line.

The flags and the output are those of libFuzzer, as far as `fuzzing` uses them.
"""

from __future__ import annotations

import hashlib
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

SOURCE = str(Path(__file__).parents[2] / "src" / "plugbay")
"""Not imported here: atheris instruments what it imports itself."""
INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)
MAX_STEPS = 6
"""Changes of one input."""

Check = Callable[[bytes], object]


class Coverage:
    """Runs a check and collects the branches of plugbay that it takes."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._taken: set[tuple[object, int, int]] = set()
        self.known: set[tuple[object, int, int]] = set()

    def run(self, data: bytes) -> bool:
        """Check one input; whether it took a new branch."""
        self._taken = set()
        sys.settrace(self._on_call)
        try:
            self._check(data)
        finally:
            sys.settrace(None)
        new = self._taken - self.known
        self.known |= new
        return bool(new)

    def _on_call(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(SOURCE):
            return None
        last = 0

        def on_line(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal last
            self._taken.add((code, last, frame.f_lineno))
            last = frame.f_lineno
            return on_line

        return on_line


class Mutator:
    """Makes new inputs of those that reached something."""

    def __init__(self, words: Sequence[bytes], max_length: int, seed: int) -> None:
        self._words = words
        self._max_length = max_length
        self._random = random.Random(seed)

    def mutate(self, inputs: Sequence[bytes]) -> bytes:
        """Change one input in a few places. The newest are preferred: they are at the edge of the known."""
        chosen = self._random
        newest = inputs[-max(1, len(inputs) // 4) :]
        data = bytearray(chosen.choice(newest if chosen.random() < 0.5 else inputs))
        for _ in range(chosen.randint(1, MAX_STEPS)):
            at = chosen.randint(0, len(data))
            end = min(len(data), at + chosen.randint(1, 16))
            step = chosen.randrange(7)
            if step == 0 and at < len(data):
                data[at] ^= 1 << chosen.randrange(8)
            elif step == 1 and at < len(data):
                data[at] = chosen.choice((*INTERESTING, chosen.randrange(256)))
            elif step == 2:
                del data[at:end]
            elif step == 3:
                data[at:at] = data[at:end] * chosen.choice((1, 1, 2, 50))
            elif step == 4 and self._words:
                data[at : end if chosen.random() < 0.3 else at] = chosen.choice(self._words)
            elif step == 5:
                other = chosen.choice(inputs)
                begin = chosen.randint(0, len(other))
                data[at:end] = other[begin : begin + chosen.randint(1, 64)]
            else:
                data[at:at] = bytes(chosen.choices(range(256), k=chosen.randint(1, 4)))
        return bytes(data[: self._max_length])


def search(check: Check, arguments: Iterable[str]) -> None:
    """Search for as long as the flags say; exits with 1 at the first finding, which is written to a file."""
    words = list(arguments)
    flags = dict(word[1:].split("=", 1) for word in words if word.startswith("-"))
    work, *seeds = (Path(word) for word in words if not word.startswith("-"))
    until = time.monotonic() + float(flags["max_total_time"])
    coverage = Coverage(check)
    seed = random.SystemRandom().getrandbits(32)
    dictionary = [line[1:-1] for line in Path(flags["dict"]).read_bytes().splitlines()]
    mutator = Mutator(dictionary, int(flags["max_len"]), seed)
    known = [path.read_bytes() for folder in (*seeds, work) for path in sorted(folder.iterdir())]
    inputs: list[bytes] = []
    executions = 0

    def report(kind: str, data: bytes) -> NoReturn:
        name = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        Path(f"{flags['artifact_prefix']}{kind}-{name}").write_bytes(data)
        traceback.print_exc()
        sys.exit(1)

    while executions < len(known) or time.monotonic() < until:
        data = known[executions] if executions < len(known) else mutator.mutate(inputs)
        executions += 1
        signal.signal(signal.SIGALRM, lambda *_: report("timeout", data))  # noqa: B023 - the alarm ends with the input
        signal.alarm(int(flags["timeout"]))
        try:
            is_new = coverage.run(data)
        except Exception:
            report("crash", data)
        finally:
            signal.alarm(0)
        if is_new or not inputs:
            inputs.append(data)
            if executions > len(known):
                (work / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)
    print(f"#{executions}\tDONE   cov: {len(coverage.known)} ft: {len(inputs)} seed: {seed}")
