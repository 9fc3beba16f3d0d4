"""Answers memory.vector_upsert with a text as count.

The answer must have its shape: malformed_response.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked("memory.vector_upsert")
child.say(id=request["id"], result={"count": "one"})
child.serve()
