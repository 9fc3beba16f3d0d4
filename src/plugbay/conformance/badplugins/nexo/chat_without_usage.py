"""Answers llm.chat without usage.

The answer must be whole: malformed_response.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked("llm.chat")
child.say(id=request["id"], result={"content": {"type": "text", "text": "hi"}, "finish_reason": {"kind": "stop"}})
child.serve()
