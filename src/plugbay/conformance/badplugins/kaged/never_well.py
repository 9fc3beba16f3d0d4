"""Never answers a health check: accepted until then, and a new one is started in its place, recorded as a crash."""

from __future__ import annotations

from child import WELL, answer, greet, read

greet()
while True:
    message = read()
    if "id" in message and message["method"] != "health.check":
        answer(message, WELL if message["method"] == "shutdown" else {"said": "hello"})
