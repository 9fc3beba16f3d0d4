"""Answers with an error that is a text.

An error is an object: malformed_response.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=request["id"], error="no")
child.serve()
