"""Publishes within its topics, without id and time.

The host completes the event: accepted.
"""

from __future__ import annotations

import child

EVENT = {"topic": "plugin.inbound.pigeon", "source": "bad", "payload": 1}
child.greet()
request = child.asked()
child.publish("plugin.inbound.pigeon", EVENT)
child.publish("plugin.inbound.pigeon.a.b", EVENT)
child.say(id=request["id"], result=child.SAID)
child.serve()
