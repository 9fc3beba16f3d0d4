"""`python -m tests.load rest|fleet|restart [--json]`: load on a real server or host, and its figures.

The exit status is 1 if anything went wrong; slow is not wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.load.figures import Figures
from tests.load.fleet import fleet
from tests.load.rest import rest
from tests.load.restart import restart

KINDS: dict[str, tuple[Callable[..., Figures], dict[str, Any], str]] = {
    "rest": (
        rest,
        {"clients": 50, "seconds": 60.0, "concurrency": 1},
        "REST clients that invoke isolated and worker tools",
    ),
    "fleet": (fleet, {"plugins": 400}, "confined plugins in one host: start, call, stop"),
    "restart": (restart, {"times": 5}, "a killed server until it is ready again, beside the imports of its libraries"),
}
"""By name: the load, its options with their defaults, and its help."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.load")
    kinds = parser.add_subparsers(dest="kind", required=True)
    for name, (_, options, text) in KINDS.items():
        kind = kinds.add_parser(name, help=text)
        kind.add_argument("--json", action="store_true")
        for option, default in options.items():
            kind.add_argument(f"--{option}", type=type(default), default=default)
    chosen = parser.parse_args()
    load, options, _ = KINDS[chosen.kind]
    with tempfile.TemporaryDirectory(prefix="plugbay-load-") as folder:
        figures = load(Path(folder), **{name: getattr(chosen, name) for name in options})
    print(json.dumps(figures.to_json(), indent=2) if chosen.json else figures.table())
    for problem in figures.problems[:40]:
        print(f"problem: {problem}", file=sys.stderr)
    return 1 if figures.problems else 0


if __name__ == "__main__":
    sys.exit(main())
