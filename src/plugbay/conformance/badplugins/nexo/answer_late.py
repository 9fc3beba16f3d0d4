"""Answers after the host's patience has ended.

A late answer is counted and nothing else; the plugin goes on: timeout.
"""

from __future__ import annotations

import time

import child

child.greet()
request = child.asked()
time.sleep(1)
child.say(id=request["id"], result=child.SAID)
child.serve()
