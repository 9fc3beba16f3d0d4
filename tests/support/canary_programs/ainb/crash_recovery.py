"""A plugin with a screen that can be killed at any time; broken: what it leaves behind spoils the next start."""

from __future__ import annotations

import os
import time

import child
from child import KIND, SERVES, Message, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MARK = os.path.join(os.environ.get("TMPDIR", "/tmp"), "canary.running")
was_killed = KIND != "" and os.path.exists(MARK)


def mark() -> None:
    with open(MARK, "w", encoding="utf-8") as file:
        file.write("at work")


def init(params: Message) -> Any:
    hello = child.init(params)
    if was_killed and KIND == "another_identity":
        hello["version"] = "1.0.0-recovered"
    if KIND == "needs_to_finish":
        mark()
    if was_killed and KIND in ("refuses_to_start", "needs_to_finish"):
        raise child.Refusal(-32603, "another one is running already")
    return hello


def render(params: Message) -> Any:
    mark()
    if KIND == "needs_to_finish":
        time.sleep(0.5)
        os.remove(MARK)
    if was_killed and KIND == "lost_its_state":
        raise child.Refusal(-32603, "the state is damaged")
    return child.render(params)


SERVES["plugin/init"] = init
SERVES["plugin/render"] = render
serve()
