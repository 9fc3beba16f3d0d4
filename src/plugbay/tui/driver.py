"""`HangupDriver`: Textual's driver for a terminal that may go away under it.

Owns that writes to a terminal that is gone go nowhere. Textual's writer thread ends at the first error, and whoever
writes next waits for it for ever, with the event loop; its input thread reads the end of the terminal over and over.
"""

from __future__ import annotations

import select
from typing import Any, cast

from textual.drivers.linux_driver import LinuxDriver


class HangupDriver(LinuxDriver):
    """The driver of `Terminal`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._file = cast(Any, _Forgiving(self._file))


class _Forgiving:
    """A file that takes whatever it is given, also when its terminal is gone."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, text: str) -> int:
        try:
            self._file.write(text)
        except OSError:
            pass
        return len(text)

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError:
            pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def is_gone(fileno: int) -> bool:
    """Whether the terminal behind this descriptor was closed."""
    poll = select.poll()
    poll.register(fileno, 0)
    return any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))
