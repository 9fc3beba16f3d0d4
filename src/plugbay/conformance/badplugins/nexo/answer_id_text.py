"""Answers with its id as a text.

An answer to no call: timeout.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=str(request["id"]), result=child.SAID)
child.serve()
