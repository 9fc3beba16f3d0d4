"""Answers channel.send_outbound with a text as time.

The answer must have its shape: malformed_response.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked("channel.send_outbound")
child.say(id=request["id"], result={"message_id": "m", "sent_at_unix": "now"})
child.serve()
