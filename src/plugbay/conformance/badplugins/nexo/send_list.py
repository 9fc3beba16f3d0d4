"""Answers channel.send_outbound with a list.

The answer must have its shape: malformed_response.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked("channel.send_outbound")
child.say(id=request["id"], result=[])
child.serve()
