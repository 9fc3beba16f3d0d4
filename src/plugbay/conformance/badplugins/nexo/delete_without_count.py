"""Answers memory.vector_delete without count.

The answer must have its shape: malformed_response.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked("memory.vector_delete")
child.say(id=request["id"], result={})
child.serve()
