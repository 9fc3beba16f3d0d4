"""Answers initialize twice.

The first answer counts, the second is to nothing: accepted.
"""

from __future__ import annotations

import child

child.greet()
child.say(id=1, result=child.hello(manifest={"plugin": {"id": "other"}}))
child.serve()
