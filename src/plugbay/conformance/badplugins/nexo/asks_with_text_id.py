"""Asks with a text as its id.

Answered with the same text: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id="a-1", method="tool.dispatch", params={})
child.say(id=request["id"], result=child.answers()["id"])
child.serve()
