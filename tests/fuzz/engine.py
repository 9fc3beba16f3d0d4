"""`python -m tests.fuzz.engine TARGET …`: one search in a process of its own, which it ends itself.

By atheris where it is installed, else by `search`. The other arguments are those of libFuzzer. Only the branches of
plugbay guide the search.
"""

from __future__ import annotations

import sys

from tests.fuzz.fuzzing import has_atheris
from tests.fuzz.search import search
from tests.fuzz.targets import load


def main() -> None:
    target = sys.argv.pop(1)
    if not has_atheris():
        return search(load(target), sys.argv[1:])
    import atheris

    with atheris.instrument_imports(include=["plugbay"], enable_loader_override=False):
        check = load(target)
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
