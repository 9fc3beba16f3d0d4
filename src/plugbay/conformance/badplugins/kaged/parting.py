"""Takes its leave as KIND says: in the end the host is rid of it, which is accepted or recorded as a timeout."""

from __future__ import annotations

import signal
import sys
import time

from child import KIND, WELL, answer, greet, read, refuse, say

greet()
if KIND == "ignores_everything":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    try:
        message = read()
    except SystemExit:
        break
    if message.get("method") != "shutdown":
        if "id" in message:
            answer(message)
    elif KIND == "error":
        refuse(message, -32603)
    elif KIND == "exits":
        sys.exit(0)
    elif KIND == "talks_on":
        answer(message, WELL)
        say(method="changed", params={})
    elif KIND == "stays":
        answer(message, WELL)
if KIND in ("stays", "ignores_end_of_input", "ignores_everything"):
    time.sleep(60)
