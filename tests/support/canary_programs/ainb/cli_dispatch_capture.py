"""A plugin with a namespace of command lines; broken: what it printed, or how it ended, cannot be told."""

from __future__ import annotations

import sys

import child
from child import KIND, SERVES, Message, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def dispatch(params: Message) -> Any:
    result = child.dispatch(params)
    argv = params["argv"]
    if KIND == "any_namespace":
        return {"stdout": "", "stderr": "", "exit_code": 0}
    if KIND == "one_at_a_time" and child.more_to_read():
        sys.exit("busy")
    if KIND == "needs_words":
        argv[0]
    if KIND == "leaves" and argv[:1] == ["--plugbay-no-such-option"]:
        sys.exit(2)
    return {**result, **WRONG.get(KIND, {})}


WRONG: dict[str, Message] = {
    "plain_text": {"stdout": "hello there\n"},
    "without_padding": {"stdout": "aGVsbG8gdGhlcmU"},
    "array": {"stdout": [104, 105]},
    "large_status": {"exit_code": 2**31},
    "no_number": {"exit_code": True},
    "text_status": {"exit_code": "0"},
}

SERVES["plugin/cli_dispatch"] = dispatch
serve()
