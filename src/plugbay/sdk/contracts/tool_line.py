"""A plugin's tools as a command line, for hosts that know command lines and no tools.

    shop                          what tools there are
    shop quote '{"items": []}'    the result is JSON on stdout; what went wrong is `code: message` on stderr

Owns that form, and which name the command line has. What a tool prints goes to stderr of the process, as under every
other contract. Knows no wire.
"""

from __future__ import annotations

from plugbay.model.errors import Code, Failure, Origin
from plugbay.sdk.runtime.dispatch import Duty, ToolDuty
from plugbay.sdk.types.handlers import Handler
from plugbay.wire.strict_json import Malformed, Unencodable, stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from plugbay.sdk.runtime.dispatch import MakeContext, Send
    from plugbay.sdk.types.handlers import Tool

DONE, FAILED, MISUSED = 0, 1, 2
"""How such a command ends: with a result, with an error of the tool, or without a tool having run."""


def tool_line(tools: Mapping[str, Tool], argv: Sequence[str]) -> Duty:
    """What to do about a command line. Whatever happens, there is an exit code in the end."""
    if not argv:
        return _saying(_listed(tools), DONE)
    name, *rest = argv
    tool = tools.get(name)
    if tool is None:
        return _saying(
            _error(Code.TOOL_NOT_EXPOSED, f"there is no tool {name!r}; there is {', '.join(tools)}"), MISUSED
        )
    keywords = _arguments(tool, rest)
    if isinstance(keywords, Failure):
        return _saying(_error(keywords.code, keywords.message), MISUSED)
    return ToolLine(tool, keywords)


def _listed(tools: Mapping[str, Tool]) -> str:
    width = max(map(len, tools))
    return "".join(f"{name:{width}}  {tool.description}".rstrip() + "\n" for name, tool in tools.items())


def _arguments(tool: Tool, words: Sequence[str]) -> dict[str, Any] | Failure:
    if len(words) > 1:
        return _refused(f"{tool.name} takes its input as one JSON value, not as {len(words)} words")
    try:
        given = stdlib_codec().decode(words[0].encode()) if words else None
    except (Malformed, UnicodeEncodeError) as error:
        return _refused(f"the input of {tool.name} is no JSON: {error}")
    return tool.arguments(given, {})


def _refused(why: str) -> Failure:
    return Failure(Code.INVALID_INPUT, why, origin=Origin.PLUGIN)


class ToolLine(Duty):
    """A tool to run, and its result or its error to be written out. Tools run beside one another everywhere."""

    __slots__ = ("_inner",)

    def __init__(self, tool: Tool, keywords: dict[str, Any]) -> None:
        super().__init__(tool, concurrent=True)
        self._inner = ToolDuty(tool, keywords=keywords, stop=self.stop)

    def call(self, context: MakeContext, send: Send) -> Any:
        try:
            return self._inner.call(context, send)
        except BaseException as error:  # SystemExit too
            return self.failure(error)

    def settle(self, value: Any, send: Send) -> dict[str, Any]:
        try:
            return _written(value if isinstance(value, Failure) else self._inner.settle(value, send))
        except BaseException as error:
            return _written(self.failure(error))

    async def settle_later(self, value: Any, send: Send) -> dict[str, Any]:
        try:
            return _written(value if isinstance(value, Failure) else await self._inner.settle_later(value, send))
        except BaseException as error:
            return _written(self.failure(error))


def _written(value: Any) -> dict[str, Any]:
    """A result, or a `Failure`, as the output of a command."""
    if isinstance(value, Failure):
        text = _error(value.code, value.message).encode("utf-8", "backslashreplace")
        return _output(b"", text, FAILED)
    try:
        return _output(stdlib_codec().encode(value) + b"\n", b"", DONE)
    except Unencodable as error:
        return _written(Failure(Code.PLUGIN_ERROR, f"the result cannot be sent: {error}", origin=Origin.PLUGIN))


def _error(code: str, message: str) -> str:
    return f"{code}: {message}\n"


def _output(stdout: bytes, stderr: bytes, exit_code: int) -> dict[str, Any]:
    return {"stdout": stdout, "stderr": stderr, "exit_code": exit_code}


def _saying(text: str, exit_code: int) -> Duty:
    """Something to say at once: of what went well on stdout, of anything else on stderr."""
    said = text.encode("utf-8", "backslashreplace")
    output = _output(said, b"", DONE) if exit_code == DONE else _output(b"", said, exit_code)
    return Duty(Handler(lambda: output), concurrent=True)
