"""Answers llm.chat with a finish_reason of no kind.

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
child.say(id=request["id"], result={**WHOLE, "finish_reason": {"kind": "bored"}})
child.serve()
