"""Publishes with an id and waits for the answer.

Later children do that; it is answered with ok: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=1, method="broker.publish", params={"topic": "plugin.inbound.pigeon", "event": {"payload": 1}})
child.say(id=request["id"], result=child.answers()["result"])
child.serve()
