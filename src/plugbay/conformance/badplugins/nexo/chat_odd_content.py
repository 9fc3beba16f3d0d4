"""Answers llm.chat with content of an unknown type.

The answer must be whole: malformed_response.
"""

from __future__ import annotations

import child

WHOLE = {
    "content": {"type": "text", "text": "hi"},
    "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    "finish_reason": {"kind": "stop"},
}

child.greet()
request = child.asked("llm.chat")
child.say(id=request["id"], result={**WHOLE, "content": {"type": "image"}})
child.serve()
