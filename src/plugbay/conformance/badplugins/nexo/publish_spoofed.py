"""Publishes in the name of somebody else.

Topic and source are the host's word: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.publish("plugin.inbound.pigeon", {"topic": "agent.route.all", "source": "agent.coordinator", "payload": 1})
child.say(id=request["id"], result=child.SAID)
child.serve()
