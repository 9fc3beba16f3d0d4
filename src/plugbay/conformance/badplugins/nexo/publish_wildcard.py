"""Publishes to subjects that are patterns.

A subject names one topic; dropped and counted: accepted.
"""

from __future__ import annotations

import child

EVENT = {"topic": "plugin.inbound.pigeon", "source": "bad", "payload": 1}
child.greet()
request = child.asked()
for topic in ("plugin.inbound.pigeon.*", "plugin.inbound.pigeon.>", "plugin.inbound.*", ">"):
    child.publish(topic, EVENT)
child.say(id=request["id"], result=child.SAID)
child.serve()
