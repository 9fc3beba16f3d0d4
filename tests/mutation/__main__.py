"""`python -m tests.mutation [MODULE…]`: the tests of each module that decides catch every change of it.

A mutant that survives is red, unless `equivalent.toml` says why no test can tell it from the module.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from pathlib import Path

from tests.mutation.trial import Result, try_module

MODULES = (
    "plugbay.host.authorization.policy",
    "plugbay.host.services.hooks",
    "plugbay.host.supervision.hung",
    "plugbay.host.supervision.restart",
    "plugbay.model.gate",
    "plugbay.packages.keys",
    "plugbay.packages.signature",
    "plugbay.packages.trust",
    "plugbay.server.domain.policy",
)
EQUIVALENT = Path(__file__).with_name("equivalent.toml")


def read_explained(path: Path) -> dict[str, dict[str, str]]:
    """The reasons for survivors, by module and mutant."""
    found: dict[str, dict[str, str]] = tomllib.loads(path.read_text("utf-8"))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", default=MODULES, metavar="MODULE")
    parser.add_argument("--explained", type=Path, default=EQUIVALENT, metavar="FILE", help="reasons for survivors")
    options = parser.parse_args()
    explained = read_explained(options.explained)
    red = [_report(module, set(explained.get(module, {}))) for module in options.modules]
    return 1 if any(red) else 0


def _report(module: str, known: set[str]) -> bool:
    """Try a module; whether it is red."""
    results = try_module(module, os.cpu_count() or 1)
    red = find_red(results, known)
    survivors = sum(result.survived for result in results)
    counts = f"{len(results)} mutants, {len(results) - survivors} caught, {survivors} survive"
    hung = [f"caught by a hang: {result.name}" for result in results if result.hung]
    print(f"{module}: {counts}", *red, *hung, sep="\n  ", flush=True)
    return bool(red)


def find_red(results: list[Result], known: set[str]) -> list[str]:
    """Survivors without a reason, and reasons without a survivor."""
    survivors = {result.name for result in results if result.survived}
    unexplained = [f"survives: {name}" for name in sorted(survivors - known)]
    return unexplained + [f"explained, but caught or gone: {name}" for name in sorted(known - survivors)]


if __name__ == "__main__":
    sys.exit(main())
