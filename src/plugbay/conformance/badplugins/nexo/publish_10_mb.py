"""Publishes an event of 10 MB.

More than any plugin reads in a line; dropped and counted: accepted.
"""

from __future__ import annotations

import child

EVENT = {"topic": "plugin.inbound.pigeon", "source": "bad", "payload": 1}
child.greet()
request = child.asked()
child.publish("plugin.inbound.pigeon", {**EVENT, "payload": "x" * 10_000_000})
child.say(id=request["id"], result=child.SAID)
child.serve()
