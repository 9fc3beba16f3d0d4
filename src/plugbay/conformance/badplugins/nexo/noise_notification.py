"""Sends notifications nobody knows before its answer.

A line that is no message is counted and read past: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(method="plugin.progress", params={"percent": 50})
child.say(method="broker.subscribe", params={})
child.say(id=request["id"], result=child.SAID)
child.serve()
