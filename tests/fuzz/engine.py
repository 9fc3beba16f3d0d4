"""`python -m tests.fuzz.engine TARGET …`: one run of atheris in a process of its own, which it ends itself.

The other arguments are those of libFuzzer. Only plugbay is instrumented: its branches guide the search.
"""

from __future__ import annotations

import sys


def main() -> None:
    import atheris

    from tests.fuzz.targets import load

    target = sys.argv.pop(1)
    with atheris.instrument_imports(include=["plugbay"], enable_loader_override=False):
        check = load(target)
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
