"""`python -m tests.soak [MINUTES]`: mixed load on a server, for two hours by default, with a line each minute.

`--pages`: page views in a real browser instead, for an hour by default.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.soak.pages import view_pages
from tests.soak.soak import soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("minutes", type=float, nargs="?")
    parser.add_argument("--pages", action="store_true", help="page views in a real browser")
    asked = parser.parse_args()
    minutes = asked.minutes or (60.0 if asked.pages else 120.0)
    load = view_pages if asked.pages else soak
    with tempfile.TemporaryDirectory(prefix="plugbay-soak-") as folder:
        problems = load(Path(folder), minutes * 60, lambda line: print(line, flush=True))
    for problem in problems[:40]:
        print(f"problem: {problem}", file=sys.stderr)
    print(f"soak: {minutes:g} minutes, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
