"""Asks with null as its id.

Answered with null as id: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=None, method="tool.dispatch", params={})
child.say(id=request["id"], result=child.answers())
child.serve()
