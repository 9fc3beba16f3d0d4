"""Answers shutdown with an error.

Its own error reaches the operator: recorded as plugin_error.
"""

from __future__ import annotations

import child

child.greet()
child.say(id=child.asked()["id"], result=child.SAID)
child.say(id=child.read()["id"], error={"code": -32000, "message": "could not flush"})
