"""Answers and exits with 0 although nobody asked.

Reported, not punished: the next call starts a new one: accepted.
"""

from __future__ import annotations

import child

child.greet()
child.say(id=child.asked()["id"], result=child.SAID)
