"""Repeats what it is told: accepted. An id that is no file name would end it, but its caller has invalid_input."""

from __future__ import annotations

import sys

from child import Message, answer, greet, serve


def repeat(request: Message) -> None:
    context = request["params"].pop("_context")
    if any(".." in value or "/" in value for key, value in context.items() if key != "project_root"):
        sys.exit("it was told to leave its folder")
    answer(request, request["params"])


greet()
serve(repeat)
