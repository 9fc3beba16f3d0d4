"""Declares a tool in its manifest and says nothing of tools.

Tolerated, but a call ends here: tool_not_exposed.
"""

from __future__ import annotations

import child

greeting = child.hello()
del greeting["tools"]
child.say(id=child.read()["id"], result=greeting)
child.serve()
