"""Publishes after its answer to shutdown.

Nobody listens any more: accepted.
"""

from __future__ import annotations

import child

child.greet()
child.say(id=child.asked()["id"], result=child.SAID)
child.say(id=child.read()["id"], result={"ok": True})
for _ in range(10):
    child.publish("plugin.inbound.pigeon", {"payload": 1})
