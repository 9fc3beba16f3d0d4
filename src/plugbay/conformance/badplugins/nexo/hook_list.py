"""Answers hook.on_hook with a list.

The answer must have its shape: malformed_response.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked("hook.on_hook")
child.say(id=request["id"], result=[])
child.serve()
