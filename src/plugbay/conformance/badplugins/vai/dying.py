"""Dies, hangs or does not let go when its tool is called, as KIND says."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import child
from child import HEARS, KIND, Message, cancels, respond, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

GOOD: Message = {"content": [{"type": "text", "text": "hello"}]}


def spawn(away: bool) -> None:
    """A process that stays, with our pipes in its hands."""
    from subprocess import Popen  # loading it takes as long as starting the interpreter

    Popen(["sleep", "600"], start_new_session=away)


def wait(request: Message, status: str) -> None:
    cancels[request["id"]].wait(60)
    respond(request, status=status, **({"result": GOOD} if status == "succeeded" else {}))


def forks(request: Message, then: str = "") -> None:
    spawn(away=False)
    spawn(away=True)
    if then:
        respond(request, status=then, result=GOOD)


KINDS: dict[str, Callable[[Message], Any]] = {
    "exits": lambda m: os._exit(3),
    "killed": lambda m: os.kill(os.getpid(), signal.SIGKILL),
    "closes_stdout": lambda m: os.close(1),
    "never_answers": lambda m: None,
    "ignores_cancel_and_forks": forks,
    "done_within_grace": lambda m: wait(m, "succeeded"),
    "cancelled_within_grace": lambda m: wait(m, "cancelled"),
    "forks_and_answers": lambda m: forks(m, then="succeeded"),
    "floods_stderr": lambda m: (
        [print("x" * 1000, file=sys.stderr) for _ in range(5000)],
        respond(m, status="succeeded", result=GOOD),
    ),
    "ignores_shutdown": lambda m: respond(m, status="succeeded", result=GOOD),
}


def begin(message: Message) -> None:
    if message["op"] != "tool.invoke":
        return proper(message)
    cancels[message["id"]] = threading.Event()
    threading.Thread(target=KINDS[KIND], args=(message,), daemon=True).start()


if KIND in ("ignores_shutdown", "ignores_cancel_and_forks"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    HEARS["shutdown"] = lambda message: time.sleep(60)

proper: Callable[[Message], None] = child.begin
child.begin = begin
serve()
