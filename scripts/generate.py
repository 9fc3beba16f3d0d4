"""Writes the generated files; with `--check` it reports stale ones and changes nothing.

`docs/states.md`: state tables, from the transitions that the code runs on.
`docs/reference`: commands, REST operations, Python API, plugbay.toml, metrics and contracts.
`cli/gateway/routes.json`: the REST routes from which the command line of the control plane is made.
`process/sandbox/filters`: the system call filters, built by `scripts/filters`, and their hashes.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from plugbay.contracts.base import Role  # noqa: E402
from plugbay.contracts.registry import CONTRACTS  # noqa: E402
from plugbay.model.lifecycle import PENDING, TRANSITIONS, State  # noqa: E402
from plugbay.process.sandbox.seccomp import file_name  # noqa: E402
from scripts.filters.build import build  # noqa: E402
from scripts.filters.syscalls import MACHINES  # noqa: E402
from scripts.reference import pages  # noqa: E402
from scripts.rest_routes import rest_routes  # noqa: E402

HEADER = """\
# States

This page lists the states of a plugin, and of the protocol machine of each contract, with their transitions.

`scripts/generate.py` writes it from the tables that the code uses: `model/lifecycle.py`, and `TRANSITIONS` of each
contract's `machine.py`. `make check` fails if the page is out of date.
"""


WAITING = """\
A plugin begins as `pending` when it requests capabilities about which the operator has not decided, or when its
exports need an approval. It does not start, and its calls fail with `capability_not_allowed`. `host.plugins()`,
`plugbay ps`, the terminal application, the dashboard and the log show this state, with the missing grants.
"""


def table(first: str, moves: Iterable[tuple[str, str, str]]) -> str:
    """The transitions as a table; moves between the same two states share one row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for state, trigger, target in moves:
        rows.setdefault((state, target), []).append(trigger)
    lines = [f"| `{s}` | {', '.join(triggers)} | `{t}` |" for (s, t), triggers in rows.items()]
    return "\n".join([f"It begins as `{first}`.\n", "| state | on | next state |", "|---|---|---|", *lines])


def states_page() -> str:
    moves: list[tuple[str, str, str]] = [(state, trigger, target) for (state, trigger), target in TRANSITIONS.items()]
    plugin = table(State.IDLE, [*moves, (PENDING, "granted", State.IDLE), (PENDING, "approved", State.IDLE)])
    parts = [HEADER, "## A plugin, as the operator sees it\n", plugin, "", WAITING, ""]
    for name, machine in ((contract.name, contract.machine()) for contract in CONTRACTS.values()):
        for role in (Role.HOST, Role.PLUGIN):
            moves = [(s, trigger, t) for (who, s, trigger), t in machine.TRANSITIONS.items() if who == role]
            parts += [f"## The {name} machine, {role} role\n", table(machine.FIRST_STATE, moves), ""]
    return "\n".join(parts)


ROUTES = "src/plugbay/cli/gateway/routes.json"
FILTERS = "src/plugbay/process/sandbox/filters"

HASHES_HEADER = """\
\"\"\"The SHA-256 hashes of the system call filters in this folder.

Written by scripts/generate.py from scripts/filters; `make check` fails if a filter is stale.
\"\"\"

from __future__ import annotations

HASHES = {
"""


def filters() -> dict[str, bytes]:
    """All filters, by file name."""
    return {
        file_name(machine, network=network): build(machine, network=network)
        for machine in sorted(MACHINES)
        for network in (True, False)
    }


def hashes_module(programs: dict[str, bytes]) -> str:
    lines = [f'    "{name}": "{hashlib.sha256(code).hexdigest()}",\n' for name, code in programs.items()]
    return "".join([HASHES_HEADER, *lines, "}\n"])


@cache
def generated() -> dict[str, bytes]:
    """The content of each generated file."""
    programs = filters()
    return {
        "docs/states.md": states_page().encode(),
        **{f"docs/reference/{name}": text.encode() for name, text in pages().items()},
        ROUTES: rest_routes(),
        f"{FILTERS}/__init__.py": hashes_module(programs).encode(),
        **{f"{FILTERS}/{name}": code for name, code in programs.items()},
    }


def main(arguments: list[str], root: Path = ROOT) -> int:
    if not arguments and root == ROOT:
        (ROOT / ROUTES).write_bytes(rest_routes())  # first: the page of commands is made from it
    files = {root / name: content for name, content in generated().items()}
    stale = [path for path, content in files.items() if not path.exists() or path.read_bytes() != content]
    if arguments == ["--check"]:
        for path in stale:
            print(f"stale: {path.relative_to(root)}; run scripts/generate.py", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[path])
        print(f"wrote {path.relative_to(root)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
