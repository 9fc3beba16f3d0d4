"""Ignores shutdown, the end of its input and SIGTERM.

It is killed, and nothing of it is left: recorded as timeout.
"""

from __future__ import annotations

import signal
import time

import child

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
child.greet()
child.say(id=child.asked()["id"], result=child.SAID)
while True:
    time.sleep(60)
