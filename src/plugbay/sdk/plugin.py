"""`Plugin`: what an author writes. Tools are plain functions; `run()` speaks the contract.

    from plugbay.sdk import Plugin

    plugin = Plugin("example.greeter", version="1.0.0")

    @plugin.tool(description="Greet somebody.")
    def greet(name: str, excited: bool = False) -> dict:
        return {"text": f"Hello, {name}{'!' if excited else '.'}"}

    plugin.run()

Owns the author's declarations and how an input becomes a handler's arguments. Knows no wire format.
"""

from __future__ import annotations

import os
import sys

from plugbay.model.errors import Code, Failure, Origin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, NoReturn, TypeVar

    Function = TypeVar("Function", bound=Callable[..., Any])

_VARKEYWORDS = 0x08
"""A code flag, as in `inspect`, which costs 27 ms to import."""


class ToolError(Exception):
    """Raise it in a tool to answer with an error of your own; `code` is yours to choose."""

    def __init__(self, message: str, code: str = "plugin_error") -> None:
        super().__init__(message)
        self.code = code


class Tool:
    """One declared tool."""

    __slots__ = ("description", "function", "name")

    def __init__(self, name: str, description: str, function: Callable[..., Any]) -> None:
        self.name = name
        self.description = description
        self.function = function

    def invoke(self, given: Any, context: Mapping[str, Any]) -> Any:
        """Run the tool; the result is its value or a `Failure`."""
        arguments = self._arguments(given, context)
        if isinstance(arguments, Failure):
            return arguments
        try:
            value = self.function(**arguments)
            if hasattr(value, "__await__"):
                import asyncio

                value = asyncio.run(_awaited(value))
        except ToolError as error:
            code = error.code if error.code in (Code.INVALID_INPUT, Code.NOT_FOUND) else Code.PLUGIN_ERROR
            return Failure(code, str(error), origin=Origin.PLUGIN, detail={"plugin_code": error.code})
        except BaseException as error:  # SystemExit too: argparse in a tool must not look like a crash
            _print_traceback()
            text = f"{type(error).__name__}: {_text(error)}"
            return Failure(Code.PLUGIN_ERROR, text, origin=Origin.PLUGIN, detail={"plugin_code": "internal"})
        return value

    def _arguments(self, given: Any, context: Mapping[str, Any]) -> dict[str, Any] | Failure:
        """The input object as keyword arguments; a parameter called `input` takes the whole input instead."""
        names, required, open_ended = _parameters(self.function)
        extra = {"context": dict(context)} if "context" in names else {}
        names = [name for name in names if name != "context"]
        if names == ["input"]:
            return {"input": given, **extra}
        if not isinstance(given, dict):
            return _invalid(f"the input must be an object with {', '.join(names) or 'no keys'}")
        missing = [name for name in names if name in required and name not in given]
        if missing:
            return _invalid(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} required")
        unknown = [] if open_ended else [name for name in given if name not in names]
        if unknown:
            return _invalid(f"unknown: {', '.join(unknown)}; this tool takes {', '.join(names) or 'nothing'}")
        return {**given, **extra}


class Plugin:
    """A plugin: an id, a version, and the tools it offers."""

    def __init__(self, id: str, version: str = "0.1.0", *, capabilities: Iterable[str] = ()) -> None:
        self.id = id
        self.version = version
        self.capabilities = tuple(capabilities)
        self.tools: dict[str, Tool] = {}

    def tool(self, name: str | None = None, *, description: str = "") -> Callable[[Function], Function]:
        """Offer a function as a tool; its name and docstring are the defaults."""

        if name is not None and not isinstance(name, str):
            raise TypeError("write @plugin.tool() with parentheses")

        def register(function: Function) -> Function:
            if not hasattr(function, "__code__") or hasattr(function, "__self__"):
                raise TypeError(f"a tool must be a plain function, not {function!r}; wrap it in one")
            called = name or function.__name__
            if called in self.tools:
                raise ValueError(f"two tools are called {called!r}")
            text = description or (function.__doc__ or "").strip().split("\n")[0]
            self.tools[called] = Tool(called, text, function)
            return function

        return register

    def invoke(self, tool: str, given: Any, context: Mapping[str, Any]) -> Any:
        """What the wire asks for: the tool's value, or a `Failure`."""
        found = self.tools.get(tool)
        if found is None:
            return Failure(Code.NOT_FOUND, f"there is no tool {tool!r}", origin=Origin.PLUGIN)
        return found.invoke(given, context)

    def run(self) -> NoReturn:
        """Serve the host that started this process, then leave. Never returns."""
        if os.isatty(0):
            sys.stderr.write(_HINT.format(id=self.id, tools=", ".join(self.tools) or "none yet"))
            sys.exit(2)
        from plugbay.sdk.serving import serve

        serve(self)


_HINT = """\
{id} is a plugin: it waits for a host to speak to it on standard input.
Tools: {tools}

  plugbay call . TOOL '{{"key": "value"}}'     call one of them
  plugbay inspect .                           what this plugin is
  plugbay conform .                           does it keep its contract
"""


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


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its text cannot be read)"


def _print_traceback() -> None:
    import traceback

    try:
        traceback.print_exc()
    except (OSError, ValueError):
        pass  # stderr is closed; the answer still says what happened
