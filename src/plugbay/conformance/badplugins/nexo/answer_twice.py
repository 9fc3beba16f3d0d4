"""Answers twice.

The first answer counts: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=request["id"], result=child.SAID)
child.say(id=request["id"], result={"said": "again"})
child.serve()
