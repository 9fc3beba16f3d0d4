"""A plugin that reads in the folder it asked for; broken: it reads elsewhere, or needs what it wanted to read."""

from __future__ import annotations

import os

import child
from child import KIND, SERVES, Message, ask, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NOTES = os.path.expanduser("~/.plugbay-conformance-canary/notes")
PATHS = {
    "elsewhere": "/etc/hostname",
    "climbs_out": NOTES + "/../../.ssh/config",
    "relative": "notes/today",
    "tilde": "~/.plugbay-conformance-canary/notes/today",
    "next_door": NOTES + "-private/today",
}


def dispatch(params: Message) -> Any:
    found = ask("host/fs/read_dir", path=NOTES)
    for entry in found.get("result", {"entries": []})["entries"]:
        ask("host/fs/read_file", path=f"{NOTES}/{entry['name']}")
    if KIND in PATHS:
        ask("host/fs/read_file", path=PATHS[KIND])
    if KIND == "needs_the_file" and found.get("error", {}).get("code") == -32602:
        raise FileNotFoundError(NOTES)
    if KIND == "path_number":
        ask("host/fs/read_file", path=7)
    return child.dispatch(params)


SERVES["plugin/cli_dispatch"] = dispatch
serve()
