"""Publishes something that is no event.

Dropped and counted: accepted.
"""

from __future__ import annotations

import child

EVENT = {"topic": "plugin.inbound.pigeon", "source": "bad", "payload": 1}
child.greet()
request = child.asked()
child.publish("plugin.inbound.pigeon", "text")
child.publish("plugin.inbound.pigeon", None)
child.publish(7, EVENT)
child.say(method="broker.publish")
child.say(method="broker.publish", params=[])
child.say(id=request["id"], result=child.SAID)
child.serve()
