"""Answers llm.chat with a text.

The answer must be whole: malformed_response.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked("llm.chat")
child.say(id=request["id"], result="hi")
child.serve()
