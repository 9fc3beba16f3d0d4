"""Publishes 20,000 events at once.

Whoever does not keep up loses some; nobody waits: accepted.
"""

from __future__ import annotations

import child

EVENT = {"topic": "plugin.inbound.pigeon", "source": "bad", "payload": 1}
child.greet()
request = child.asked()
for _ in range(20_000):
    child.publish("plugin.inbound.pigeon.flood", EVENT)
child.say(id=request["id"], result=child.SAID)
child.serve()
