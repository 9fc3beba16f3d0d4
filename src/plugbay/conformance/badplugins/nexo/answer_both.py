"""Answers with a result and an error.

Never both: malformed_response.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=request["id"], result=child.SAID, error={"code": -33403, "message": "no"})
child.serve()
