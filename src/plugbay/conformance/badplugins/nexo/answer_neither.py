"""Answers with neither a result nor an error.

One of both: malformed_response.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=request["id"])
child.serve()
