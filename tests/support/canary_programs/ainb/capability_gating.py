"""A plugin that asks for the bus and the network, and does without them; broken: it cannot, or asks for more."""

from __future__ import annotations

import sys

import child
from child import KIND, SERVES, Message, ask, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def init(params: Message) -> Any:
    answers = [ask("host/snapshot/get", topic="canary.state"), ask("host/snapshot/subscribe", topic="canary.state")]
    answers.append(ask("host/network/fetch", url="https://example.org/", method="GET", body=None, headers=[]))
    codes = [each.get("error", {}).get("code") for each in answers]
    if KIND == "dies_when_denied" and -32001 in codes:
        sys.exit(1)
    if KIND == "dies_when_absent" and -32601 in codes:
        sys.exit(1)
    if KIND == "asks_for_files":
        ask("host/fs/read_file", path="/etc/hostname")
    if KIND == "refuses_to_start" and -32001 in codes:
        raise child.Refusal(-32001, "capability denied: network")
    return child.init(params)


def dispatch(params: Message) -> Any:
    ask("host/network/fetch", url="https://example.org/")
    return child.dispatch(params)


SERVES["plugin/init"] = init
SERVES["plugin/cli_dispatch"] = dispatch
serve()
