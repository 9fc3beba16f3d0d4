"""Answers channel.send_outbound without message_id.

The answer must have its shape: malformed_response.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked("channel.send_outbound")
child.say(id=request["id"], result={"sent_at_unix": 1741032000})
child.serve()
