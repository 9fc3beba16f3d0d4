"""Never answers shutdown.

It is killed when its time is up: recorded as timeout.
"""

from __future__ import annotations

import child

child.greet()
child.say(id=child.asked()["id"], result=child.SAID)
child.read()
child.read()
