"""`CommandLines`: runs command lines of plugins, with their output and exit status.

The plugin interprets the arguments; the caller decides where the output goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from plugbay.host.calls.calls import Calls
from plugbay.host.request import CallRequest
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.operations import DispatchCli


@dataclass(frozen=True, slots=True)
class CliOutput:
    """The output of a plugin's command line, byte for byte, and its exit status."""

    stdout: bytes
    stderr: bytes
    exit_code: int


class _Answer(msgspec.Struct, gc=False):
    stdout: bytes
    stderr: bytes
    exit_code: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


_decode = msgspec.json.Decoder(_Answer).decode


class CommandLines:
    """The command lines of all plugins, by namespace."""

    def __init__(self, calls: Calls, answered: Callable[[str], None]) -> None:
        """`answered` is called with the id of each plugin that has answered."""
        self._calls = calls
        self._answered = answered

    async def run(self, name: str, argv: Sequence[str], timeout: float | None = None) -> CliOutput:
        """Run a command line of a plugin; raises `CallFailed` when it does not exit by itself."""
        refusal = _encoding_problem(argv)
        if refusal is not None:
            raise CallFailed(refusal)
        words = list(argv)
        request = CallRequest(
            name,
            kind="cli_namespace",
            timeout=timeout,
            make_operation=lambda entry: DispatchCli(entry.export.name, words),
        )
        result = await self._calls.run(request)
        if result.failure is not None:
            raise CallFailed(result.failure, result.record.call_id)
        self._answered(result.record.plugin)
        answer = _decode(result.output)
        return CliOutput(answer.stdout, answer.stderr, answer.exit_code)


def _encoding_problem(argv: Sequence[str]) -> Failure | None:
    """Why an argument cannot be sent: a shell passes any bytes, a message holds text."""
    for place, word in enumerate(argv, start=1):
        try:
            word.encode()
        except UnicodeEncodeError:
            return Failure(Code.INVALID_INPUT, f"argument {place} is no UTF-8 and cannot be sent: {word!r}")
    return None
