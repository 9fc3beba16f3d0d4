"""A command line of a plugin: its output consists of prints, writes, the result and the error of its handler.

`print` inside a handler goes to the command's output, in this handler only: elsewhere, and in threads that the
handler starts, it goes to stderr.
"""

from __future__ import annotations

import sys
from _contextvars import ContextVar

from plugbay.model.values import Value
from plugbay.sdk.errors import failure_of
from plugbay.sdk.io.stdio import exit_copy
from plugbay.sdk.runtime.dispatch import Task
from plugbay.sdk.services.brokered import as_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from plugbay.sdk.context import Context
    from plugbay.sdk.runtime.dispatch import MakeContext, Send
    from plugbay.sdk.services.cancellation import Cancellation
    from plugbay.sdk.types.handlers import Command


class CliResult(Value):
    """The whole output of a command line. Printed text comes first."""

    __slots__ = ("exit_code", "stderr", "stdout")

    def __init__(self, stdout: str | bytes = b"", stderr: str | bytes = b"", exit_code: int = 0) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.exit_code = exit_code


class Output:
    """A stream that keeps all writes, text or bytes."""

    __slots__ = ("_parts",)

    encoding, errors = "utf-8", "replace"

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: str | bytes | bytearray | memoryview) -> int:
        self._parts.append(data.encode(self.encoding, self.errors) if isinstance(data, str) else bytes(data))
        return len(data)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Writes are kept in memory: there is nothing to flush."""

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    @property
    def buffer(self) -> Output:
        """Where libraries write bytes."""
        return self

    def value(self) -> bytes:
        return b"".join(self._parts)


_SPEAKER: ContextVar[dict[str, Output] | None] = ContextVar("plugbay_command_line", default=None)
"""The outputs of the command line that is being handled here: in this thread, or in this task."""


class Routed:
    """`sys.stdout` or `sys.stderr` of a plugin with command lines: the command's where one is handled."""

    __slots__ = ("_name", "_stream")

    def __init__(self, name: str, stream: Any) -> None:
        self._name = name
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        speaker = _SPEAKER.get()
        return getattr(self._stream if speaker is None else speaker[self._name], name)


def route() -> None:
    """Have `print` go where it belongs, from now on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None:  # the descriptor was closed before we started: nothing is printed anywhere
            setattr(sys, name, Routed(name, stream))


class CliTask(Task):
    """A command line to answer. Its handler always ends with an exit code."""

    __slots__ = ("_outputs",)

    def __init__(self, handler: Command, given: Any) -> None:
        """`given`: the argument of the handler, for a command line its words."""
        super().__init__(handler, given, concurrent=handler.concurrent)
        self._outputs = {"stdout": Output(), "stderr": Output()}

    def call(self, context: MakeContext, send: Send) -> Any:
        def equipped(said: Mapping[str, Any] | None, stop: Cancellation) -> Context:
            ctx = context(said, stop)
            ctx.out, ctx.err = self._outputs["stdout"], self._outputs["stderr"]
            return ctx

        token = _SPEAKER.set(self._outputs)
        try:
            return super().call(equipped, send)
        except BaseException as error:  # SystemExit is how argparse ends a command
            return _Raised(error)
        finally:
            _SPEAKER.reset(token)

    def settle(self, value: Any, send: Send) -> Any:
        try:
            exit_code = self._taken(value)
        except BaseException as error:
            exit_code = self._ended(error)
        return {**{name: output.value() for name, output in self._outputs.items()}, "exit_code": exit_code}

    async def settle_later(self, value: Any, send: Send) -> Any:
        token = _SPEAKER.set(self._outputs)
        try:
            value = await value if hasattr(value, "__await__") else value
        except BaseException as error:
            value = _Raised(error)
        finally:
            _SPEAKER.reset(token)
        return self.settle(value, send)

    def _taken(self, value: Any) -> int:
        """The exit code of a handler's result, which is written out."""
        if isinstance(value, _Raised):
            raise value.error
        if isinstance(value, CliResult):
            self._outputs["stdout"].write(value.stdout)
            self._outputs["stderr"].write(value.stderr)
            return _exit_code(value.exit_code)
        if isinstance(value, str | bytes):
            self._outputs["stdout"].write(value)
            return 0
        if not (value is None or isinstance(value, int)):
            raise TypeError(f"a command line returns a str, bytes, an int, a CliResult or None, not {type(value)}")
        return _exit_code(value)

    def _ended(self, error: BaseException) -> int:
        """As Python does when a program raises: `sys.exit` with a text prints it, and a bug is exit code 1."""
        exit_copy(error)
        if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
            return _exit_code(error.code)
        text = error.code if isinstance(error, SystemExit) else failure_of(error).message
        self._outputs["stderr"].write(f"{text}\n")
        return 1


class ActionCliTask(CliTask):
    """An action that was invoked as a command line: its words are the data, its result is the output."""

    __slots__ = ()

    def _taken(self, value: Any) -> int:
        if isinstance(value, _Raised):
            raise value.error
        self._outputs["stdout"].write(as_bytes(value))
        return 0


class _Raised:
    """The exception of a handler, before it becomes an exit code."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _exit_code(code: int | None) -> int:
    """As an operating system keeps it: one byte."""
    return (code or 0) & 0xFF
