"""An author's functions: what each wants to be called with, and how a tool's input becomes its arguments.

Owns the special parameter names: `ctx` gets the host's services, `context` what the host says about the call, `input`
the whole input of a tool. Knows no contract, no threads and no wire.
"""

from __future__ import annotations

from plugbay.model.errors import Code, Failure, Origin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_VARKEYWORDS, _COROUTINE, _ASYNC_GENERATOR = 0x08, 0x80, 0x200
"""Code flags, as in `inspect`, which costs 27 ms to import."""


class Handler:
    """One function that was declared for something."""

    __slots__ = ("function", "is_async", "takes_ctx")

    def __init__(self, function: Callable[..., Any]) -> None:
        code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
        self.function = function
        self.is_async = code is not None and bool(code.co_flags & (_COROUTINE | _ASYNC_GENERATOR))
        self.takes_ctx = code is not None and "ctx" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


class Tool(Handler):
    """One declared tool."""

    __slots__ = ("description", "input_schema", "name")

    def __init__(
        self, name: str, description: str, function: Callable[..., Any], input_schema: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(function)
        self.name = name
        self.description = description
        self.input_schema = {"type": "object"} if input_schema is None else dict(input_schema)

    def invoke(self, given: Any, context: Mapping[str, Any]) -> Any:
        """Run the tool here and now, away from any host's services; the result is its value or a `Failure`."""
        arguments = self.arguments(given, context)
        if isinstance(arguments, Failure):
            return arguments
        if self.takes_ctx:
            from plugbay.sdk.context import unconnected

            arguments["ctx"] = unconnected(said=context)
        try:
            value = self.function(**arguments)
            if hasattr(value, "__await__"):
                import asyncio

                value = asyncio.run(_awaited(value))
        except BaseException as error:  # SystemExit too: argparse in a tool must not look like a crash
            from plugbay.sdk.errors import failure_of

            return failure_of(error)
        return value

    def arguments(self, given: Any, context: Mapping[str, Any]) -> dict[str, Any] | Failure:
        """The input object as keyword arguments; a parameter called `input` takes the whole input instead."""
        names, required, open_ended = _parameters(self.function)
        extra = {"context": dict(context)} if "context" in names else {}
        names = [name for name in names if name not in ("context", "ctx")]
        if names == ["input"]:
            return {"input": given, **extra}
        given = {} if given is None else given
        if not isinstance(given, dict):
            return _invalid(f"the input must be an object with {', '.join(names) or 'no keys'}")
        missing = [name for name in names if name in required and name not in given]
        if missing:
            return _invalid(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} required")
        unknown = [name for name in given if name not in names and not (open_ended and name not in ("context", "ctx"))]
        if unknown:
            return _invalid(f"unknown: {', '.join(unknown)}; this tool takes {', '.join(names) or 'nothing'}")
        return {**given, **extra}


def _parameters(function: Callable[..., Any]) -> tuple[list[str], set[str], bool]:
    """(names, the required ones, whether it takes any keyword), without importing `inspect`."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = list(code.co_varnames[:count])
    positional = names[: code.co_argcount]
    optional = set(positional[len(positional) - len(function.__defaults__ or ()) :]) if function.__defaults__ else set()
    optional |= set(function.__kwdefaults__ or ())
    return names, set(names) - optional, bool(code.co_flags & _VARKEYWORDS)


def _invalid(message: str) -> Failure:
    return Failure(Code.INVALID_INPUT, message, origin=Origin.PLUGIN, detail={"plugin_code": "invalid_input"})


async def _awaited(value: Any) -> Any:
    return await value
