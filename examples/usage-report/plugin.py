"""A command line about tokens: `usage` prints the usage, and with a limit it is a check for scripts.

It calls an action of `usage-publisher`, so it needs that plugin, and no capability of its own.
"""

import argparse
import csv
from typing import Any

from plugbay.sdk import Plugin, ServiceError, from_json

UNITS = {"k": 10**3, "M": 10**6, "G": 10**9}

OVER = 1
"""The status when more than the limit was used. 2 is a wrong option, and 3 says that there are no numbers."""
NOTHING = 3

plugin = Plugin("usage-report", version="1.0.0", description="Prints what language models used, and checks it.")


def tokens(text: str) -> int:
    """`60M`, `1.5G` or a plain number."""
    number, factor = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1)
    return round(float(number) * factor)


@plugin.cli("usage")
def usage(argv: list[str], ctx: Any) -> int:
    options = parsed(argv)
    try:
        said = from_json(ctx.actions.invoke("usage.totals", options.by, timeout=10))
    except ServiceError as error:
        print(f"usage: there are no numbers: {error}", file=ctx.err)
        return NOTHING
    show(said, options, ctx.out)
    if options.limit is not None and said["used"] > options.limit:
        print(f"usage: {said['used']:,} tokens in {said['month']}, the limit is {options.limit:,}", file=ctx.err)
        return OVER
    return 0


def parsed(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("usage", description="Tokens that language models used this month.")
    parser.add_argument("--by", choices=("model", "day"), default="model", help="what a line is about")
    parser.add_argument("--csv", action="store_true", help="comma-separated values, for spreadsheets")
    parser.add_argument(
        "--limit", type=tokens, metavar="N", help="leave with 1 when more was used; 60M and 1.5G will do"
    )
    return parser.parse_args(argv)


def show(said: dict[str, Any], options: argparse.Namespace, out: Any) -> None:
    if options.csv:
        csv.writer(out, lineterminator="\n").writerows([(options.by, "tokens"), *said["rows"]])
        return
    print(f"{said['month']}: {said['used']:,} of {said['budget']:,} tokens", file=out)
    for name, used in said["rows"]:
        print(f"  {name!s:<12}{used:>14,}{used / (said['used'] or 1):>7.0%}", file=out)


if __name__ == "__main__":
    plugin.run()
