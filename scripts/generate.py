"""Writes the files that are generated from the code, or with `--check` says which of them are stale.

Today that is `docs/states.md`: the state diagrams, drawn from the transition tables the code itself runs on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from plugbay.contracts.base import Role
from plugbay.contracts.registry import CONTRACTS
from plugbay.model.lifecycle import TRANSITIONS, State

ROOT = Path(__file__).parents[1]

HEADER = """\
# States

Drawn from the tables the code runs on: `model/lifecycle.py` and `TRANSITIONS` of each contract's `machine.py`.
Regenerate with `.venv/bin/python scripts/generate.py`; `make check` fails when this page is stale.
"""


def diagram(first: str, moves: Iterable[tuple[str, str, str]]) -> str:
    """A Mermaid state diagram; moves between the same two states share one arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for state, trigger, target in moves:
        arrows.setdefault((state, target), []).append(trigger)
    lines = [f"    {state} --> {target}: {', '.join(triggers)}" for (state, target), triggers in arrows.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {first}", *lines, "```"])


def states_page() -> str:
    plugin = diagram(State.IDLE, [(state, trigger, target) for (state, trigger), target in TRANSITIONS.items()])
    parts = [HEADER, "## A plugin, as the operator sees it\n", plugin, ""]
    for name, machine in ((contract.name, contract.machine) for contract in CONTRACTS.values()):
        for role in (Role.HOST, Role.PLUGIN):
            moves = [(s, trigger, t) for (who, s, trigger), t in machine.TRANSITIONS.items() if who == role]
            parts += [f"## The {name} machine, {role} role\n", diagram(machine.FIRST_STATE, moves), ""]
    return "\n".join(parts)


GENERATED = {"docs/states.md": states_page}


def main(arguments: list[str]) -> int:
    pages = {ROOT / name: make() for name, make in GENERATED.items()}
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text("utf-8") != text]
    if arguments == ["--check"]:
        for path in stale:
            print(f"stale: {path.relative_to(ROOT)}; run scripts/generate.py", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(pages[path], "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
