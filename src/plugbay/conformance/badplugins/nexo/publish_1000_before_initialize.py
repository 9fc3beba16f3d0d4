"""Publishes 1,000 events before it answers initialize.

Only the first 64 are kept: accepted.
"""

from __future__ import annotations

import child

for _ in range(1000):
    child.publish("plugin.inbound.pigeon", {"payload": 1})
child.greet()
child.serve()
