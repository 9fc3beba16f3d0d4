"""`python -m tests.fuzz TARGET|all [--seconds N]`: fuzz one target, or each in turn, for N seconds.

Inputs that break a promise become files of the corpus, which `make test` replays. Inputs that reach new code are kept
in `.fuzz/` for the next run.
"""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.fuzzing import CORPUS, ROOT, fuzz, has_atheris
from tests.fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=(*TARGETS, "all"))
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target (60)")
    options = parser.parse_args()
    if not has_atheris():
        print("fuzz: atheris is not installed, so our own search runs, which is slower", file=sys.stderr)
    passed = True
    for target in TARGETS if options.target == "all" else (options.target,):
        report = fuzz(target, options.seconds, ROOT / ".fuzz" / target, CORPUS / target)
        passed = passed and report.passed
        print(report, flush=True)
        if not report.passed:
            print(report.output[-4000:], *report.findings, sep="\n", file=sys.stderr)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
