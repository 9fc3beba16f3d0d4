"""`Namespaces`: command lines that plugins answer, each with what it printed and the status it left with.

Owns how words become a dispatch and its answer becomes bytes. What the words mean is the plugin's business; where the
bytes go is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from plugbay.host.calls.calls import Calls
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.operations import DispatchCli


@dataclass(frozen=True, slots=True)
class CliOutput:
    """What a command line of a plugin wrote, byte for byte, and the status it left with."""

    stdout: bytes
    stderr: bytes
    exit_code: int


class _Answer(msgspec.Struct, gc=False):
    stdout: bytes
    stderr: bytes
    exit_code: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


_decode = msgspec.json.Decoder(_Answer).decode


class Namespaces:
    """Every namespace of command lines that some plugin answers for."""

    def __init__(self, calls: Calls, answered: Callable[[str], None]) -> None:
        """`answered` is told the id of each plugin that has answered."""
        self._calls = calls
        self._answered = answered

    async def run(self, name: str, argv: Sequence[str], timeout: float | None = None) -> CliOutput:
        """Have a plugin run a command line; raises `CallFailed` when it did not get to an end of its own."""
        refusal = _unsayable(argv)
        if refusal is not None:
            raise CallFailed(refusal)
        words = list(argv)
        result = await self._calls.attempt(
            name, lambda entry: DispatchCli(entry.export.name, words), timeout, kind="cli_namespace"
        )
        if result.failure is not None:
            raise CallFailed(result.failure, result.record.call_id)
        self._answered(result.record.plugin)
        answer = _decode(result.output)
        return CliOutput(answer.stdout, answer.stderr, answer.exit_code)


def _unsayable(argv: Sequence[str]) -> Failure | None:
    """A shell passes on whatever bytes were typed; a message holds text."""
    for place, word in enumerate(argv, start=1):
        try:
            word.encode()
        except UnicodeEncodeError:
            return Failure(Code.INVALID_INPUT, f"argument {place} is no UTF-8 and cannot be sent: {word!r}")
    return None
