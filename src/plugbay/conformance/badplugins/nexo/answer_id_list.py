"""Answers with a list as id.

An answer to no call: timeout.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=[request["id"]], result=child.SAID)
child.serve()
