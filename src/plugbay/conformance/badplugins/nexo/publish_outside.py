"""Publishes outside its topics.

Dropped and counted: accepted.
"""

from __future__ import annotations

import child

EVENT = {"topic": "plugin.inbound.pigeon", "source": "bad", "payload": 1}
child.greet()
request = child.asked()
for topic in ("agent.route.all", "command.stop", "plugin.inbound.other", "plugin.inbound", "plugin.outbound.pigeon"):
    child.publish(topic, EVENT)
child.say(id=request["id"], result=child.SAID)
child.serve()
