"""`python -m tests.soak [MINUTES]`: mixed load on a server, for two hours by default, with a line each minute."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.soak.soak import soak


def main() -> int:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 120.0
    with tempfile.TemporaryDirectory(prefix="plugbay-soak-") as folder:
        problems = soak(Path(folder), minutes * 60, lambda line: print(line, flush=True))
    for problem in problems[:40]:
        print(f"problem: {problem}", file=sys.stderr)
    print(f"soak: {minutes:g} minutes, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
