"""Answers with a result and null as its error.

Never both keys: malformed_response.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=request["id"], result=child.SAID, error=None)
child.serve()
