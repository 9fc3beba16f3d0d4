"""`python -m tests.faults [--runs N] [--seed S] [--faults NAME…]`: random faults in random order, and the checker.

Each run is a cluster of its own under load. A line for each run has its seed, its faults and what was seen; with
`--seed S --runs 1` a run is made again. The folder of a run with violations is kept.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.run import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None, help="of the first run; the next ones follow")
    parser.add_argument("--faults", nargs="*", default=[], help="only these")
    asked = parser.parse_args()
    seed = random.randrange(10**6) if asked.seed is None else asked.seed
    bad, requests, begun = 0, 0, time.monotonic()
    for at in range(asked.runs):
        folder = Path(tempfile.mkdtemp(prefix=f"plugbay-faults-{seed + at}-"))
        result = run(folder, seed + at, names=asked.faults)
        requests += result.requests
        print(f"faults: {result.line}", flush=True)
        for violation in result.violations[:20]:
            print(f"violation: {violation}", file=sys.stderr, flush=True)
        if result.violations:
            bad += 1
            print(f"logs: {folder}", file=sys.stderr, flush=True)
        else:
            shutil.rmtree(folder)
    minutes = (time.monotonic() - begun) / 60
    total = f"{asked.runs} runs from seed {seed}, {requests} requests, {bad} runs with violations, {minutes:.1f} min"
    print(f"faults: {total}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
