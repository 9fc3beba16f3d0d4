"""Answers memory.vector_search without matches.

The answer must have its shape: malformed_response.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked("memory.vector_search")
child.say(id=request["id"], result={"results": []})
child.serve()
