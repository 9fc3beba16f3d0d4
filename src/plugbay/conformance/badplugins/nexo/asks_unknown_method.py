"""Asks for a method that no host has.

Answered with -32601: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=1, method="tool.dispatch", params={})
child.say(id=request["id"], result=child.answers()["error"]["code"])
child.serve()
