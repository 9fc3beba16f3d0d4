"""Answers memory.vector_search with matches that are no objects.

The answer must have its shape: malformed_response.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked("memory.vector_search")
child.say(id=request["id"], result={"matches": ["r1"]})
child.serve()
