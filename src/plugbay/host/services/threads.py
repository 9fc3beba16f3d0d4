"""Work that may hang, each piece on a thread of its own that neither the loop nor the end of the program waits for.

The threads of an executor are waited for when the program ends, and a plugin can have the host read from a file system
or ask a name server that never answers. Bounds nothing: whoever starts work counts it until its future is done.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


def on_thread(work: Callable[[], T], name: str) -> asyncio.Future[T]:
    """A future that is done when the thread is: not to be cancelled, so whoever may go away waits for it shielded.

    What nobody waits for any more is nobody's, and a failure of it is not reported.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    done.add_done_callback(_looked_at)

    def run() -> None:
        try:
            settle = partial(done.set_result, work())
        except Exception as error:
            settle = partial(done.set_exception, error)
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the loop is closed, and with it whoever waited
            return

    threading.Thread(target=run, name=name, daemon=True).start()
    return done


def _looked_at(done: asyncio.Future[Any]) -> None:
    done.exception()
