"""Says in initialize that it is another plugin.

An impostor is killed: handshake_failed.
"""

from __future__ import annotations

import child

child.greet(manifest={"plugin": {**child.PLUGIN, "id": "slack"}})
child.serve()
