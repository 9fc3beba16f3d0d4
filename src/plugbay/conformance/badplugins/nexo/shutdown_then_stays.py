"""Answers shutdown and stays.

It has a second, then it is killed: recorded as timeout.
"""

from __future__ import annotations

import time

import child

child.greet()
child.say(id=child.asked()["id"], result=child.SAID)
child.say(id=child.read()["id"], result={"ok": True})
while True:
    time.sleep(60)
