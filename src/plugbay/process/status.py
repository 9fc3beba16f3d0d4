"""Exit statuses: reads a wait status into a value."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from enum import StrEnum


class OutOfMemory(StrEnum):
    """Whether the kernel killed a process for lack of memory. Only `NO` is false."""

    NO = ""
    OWN_LIMIT = "own limit"
    """It reached the limit of its own control group."""
    AROUND = "around"
    """A control group around it, or the machine, ran out of memory."""
    LIKELY = "likely"
    """It was killed, and the kernel killed processes for lack of memory while it ran; it has no group of its own."""


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """An exit code or a signal; neither when something else in this process collected the status first."""

    code: int | None = None
    signal: int | None = None

    @classmethod
    def from_wait(cls, status: int) -> ExitStatus:
        """Read the integer that waitpid returned."""
        code = os.waitstatus_to_exitcode(status)
        return cls(code=code) if code >= 0 else cls(signal=-code)

    @property
    def clean(self) -> bool:
        """True for exit code 0 and nothing else."""
        return self.code == 0

    def describe(self) -> str:
        """`exit code 3`, `killed by SIGSEGV`."""
        if self.signal is not None:
            return f"killed by {signal_name(self.signal)}"
        if self.code is not None:
            return f"exit code {self.code}"
        return "exit status unknown"


def signal_name(number: int) -> str:
    """`SIGTERM` for 15; `signal 99` for a number that has no name here."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
