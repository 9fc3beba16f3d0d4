"""Leaves at shutdown without an answer.

It was asked to leave and left: accepted.
"""

from __future__ import annotations

import child

child.greet()
child.say(id=child.asked()["id"], result=child.SAID)
child.read()
