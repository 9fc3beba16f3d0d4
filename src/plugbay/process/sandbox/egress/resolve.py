"""The addresses of a name, asked for once and by us, and whether an address is this machine's own.

Owns the threads on which names are resolved. Refuses to judge what it finds.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from functools import partial

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""(host name, port) → every address of the name; raises OSError."""

MAX_LOOKUPS = 16
"""Names asked for at a time, per proxy. A name server may take half a minute, and each question holds a thread."""

THREAD = "plugbay-egress"


class Resolver:
    """Asks the system's resolver, on threads that nobody waits for at the end of the program."""

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_LOOKUPS)

    async def __call__(self, host: str, port: int) -> list[str]:
        await self._slots.acquire()
        # Whoever asked may give up and go; the place is free when the thread is.
        asked = _on_thread(partial(_addresses, host, port))
        asked.add_done_callback(self._answered)
        return await asyncio.shield(asked)

    def _answered(self, asked: asyncio.Future[list[str]]) -> None:
        asked.exception()  # looked at: what nobody waits for any more is not reported
        self._slots.release()


def is_ours(address: str) -> bool:
    """Whether this machine has the address: what is sent there would come from there. Nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return bool(probe.getsockname()[0] == address)
    except OSError:  # no way there at all
        return False


def _addresses(host: str, port: int) -> list[str]:
    """Blocks."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


def _on_thread(ask: Callable[[], list[str]]) -> asyncio.Future[list[str]]:
    """A future that is done when the thread is."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[list[str]] = loop.create_future()

    def run() -> None:
        try:
            settle = partial(done.set_result, ask())
        except Exception as error:
            settle = partial(done.set_exception, error)
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the loop is closed, and with it whoever waited
            return

    threading.Thread(target=run, name=THREAD, daemon=True).start()
    return done
