"""Publishes before it answers initialize.

Kept until it is known who it is: accepted.
"""

from __future__ import annotations

import child

child.publish("plugin.inbound.pigeon", {"payload": 1})
child.greet()
child.serve()
