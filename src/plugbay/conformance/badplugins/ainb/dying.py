"""Dies, or stops reading, as KIND says: crashed, timeout, quarantined, or accepted when nobody asks it any more."""

from __future__ import annotations

import os
import signal
import sys
import time

import child
from child import KIND, SERVES, Message, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def dispatch(params: Message) -> Any:
    if KIND == "in_call":
        sys.exit(3)
    if KIND == "clean_exit_in_call":
        sys.exit(0)
    if KIND == "killed_in_call":
        os.kill(os.getpid(), signal.SIGKILL)
    if KIND == "closes_stdout":
        os.close(1)
        time.sleep(600)
    if KIND == "floods_stderr":
        sys.stderr.write("oh dear\n" * 200_000)
    return child.dispatch(params)


def handle(message: Message) -> None:
    proper(message)
    if KIND == "after_call" and message.get("method") == "plugin/cli_dispatch":
        sys.exit(0)
    if KIND == "stops_reading" and message.get("method") == "plugin/render":
        time.sleep(600)


if KIND == "at_start":
    sys.exit(1)
proper: Any = child.handle
child.handle = handle
SERVES |= {"plugin/cli_dispatch": dispatch, "plugin/render": child.render}
serve()
