"""Runs blocking work that may hang, each on a daemon thread that neither the loop nor the interpreter's exit waits for.

Executors wait for their threads at exit, and a plugin can make the host read a file system or ask a name server that
never answers. There is no limit here: callers count running work until its future is done.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


def on_thread(work: Callable[[], T], name: str) -> asyncio.Future[T]:
    """A future that is done when the thread is. It must not be cancelled: await it with `asyncio.shield`.

    The work has the context of the caller. The failure of work without a waiter is not logged.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    done: asyncio.Future[T] = loop.create_future()
    done.add_done_callback(_retrieve)

    def run() -> None:
        try:
            settle = partial(done.set_result, context.run(work))
        except Exception as error:
            settle = partial(done.set_exception, error)
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the loop is closed, so there is no waiter
            return

    threading.Thread(target=run, name=name, daemon=True).start()
    return done


def _retrieve(done: asyncio.Future[Any]) -> None:
    done.exception()
