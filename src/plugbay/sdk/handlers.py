"""An author's functions: what each wants to be called with, and how a tool's input becomes its arguments.

Owns the special parameter names: `ctx` gets the host's services, `context` what the host says about the call, `input`
the whole input of a tool; what a tool may yield; and that nothing is declared twice. Knows no contract, no threads and
no wire.
"""

from __future__ import annotations

from plugbay.model.errors import Code, Failure, Origin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypedDict, TypeVar

    Function = TypeVar("Function", bound=Callable[..., Any])

    class Facts(TypedDict, total=False):
        """The keywords that every kind of export takes."""

        capabilities: Iterable[str]
        config_schema: Mapping[str, Any] | None
        execution_class: str | None
        max_concurrency: int | None
        timeout: float | None


_VARKEYWORDS, _GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x08, 0x20, 0x80, 0x200
"""Code flags, as in `inspect`, which costs 27 ms to import."""

EFFECTS = ("read_only", "idempotent_write", "non_idempotent_write", "unknown")
"""What a tool does to the world: only the first two may be tried again without asking anybody."""

FIDELITIES = ("lossless", "checkpoint", "prompt_replay", "summary_reseed")
"""How a harness goes on after a break: exactly, from what it kept, from what it was told, from a summary."""

CLASSES = ("inline", "worker", "isolated")
"""Where an export runs: with others that are trusted, in a process shared with its own kind, in one of its own."""


class Handler:
    """One function that was declared for something."""

    __slots__ = ("function", "is_async", "takes_ctx")

    def __init__(self, function: Callable[..., Any]) -> None:
        code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
        self.function = function
        self.is_async = code is not None and bool(code.co_flags & (_COROUTINE | _ASYNC_GENERATOR))
        self.takes_ctx = code is not None and "ctx" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


class Terms:
    """On what terms an export runs, for hosts that want to know that beforehand; what is None is theirs to choose.

    `timeout` is in seconds. `max_concurrency` calls of it run at once, and one more is refused. `capabilities` are what
    this export needs beside what the whole plugin does.
    """

    __slots__ = ("capabilities", "config_schema", "execution_class", "max_concurrency", "timeout")

    def __init__(
        self,
        *,
        capabilities: Iterable[str] = (),
        config_schema: Mapping[str, Any] | None = None,
        execution_class: str | None = None,
        max_concurrency: int | None = None,
        timeout: float | None = None,
    ) -> None:
        if execution_class is not None:
            refuse_other("execution_class", execution_class, CLASSES)
        if max_concurrency is not None and (type(max_concurrency) is not int or max_concurrency < 1):
            raise ValueError(f"max_concurrency is a number of calls, not {max_concurrency!r}")
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout is a number of seconds, not {timeout!r}")
        self.capabilities = tuple(capabilities)
        self.config_schema = None if config_schema is None else dict(config_schema)
        self.execution_class = execution_class
        self.max_concurrency = max_concurrency
        self.timeout = timeout


class Export(Handler):
    """A function that is offered under a name. Without a description, the first line of its docstring is one."""

    __slots__ = ("description", "name", "terms")

    def __init__(self, name: str, description: str, function: Callable[..., Any], terms: Terms | None = None) -> None:
        super().__init__(function)
        self.name = name
        self.description = description or (getattr(function, "__doc__", None) or "").strip().split("\n")[0]
        self.terms = terms or Terms()


class Compactor(Export):
    """Who makes conversations shorter: of what kind, and whether it keeps what is pinned."""

    __slots__ = ("supports_pinned_items", "target_context")

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        export: str | None = None,
        description: str = "",
        target_context: str = "general",
        supports_pinned_items: bool = False,
        **facts: Any,
    ) -> None:
        super().__init__(export or named_after(function, "compactor"), description, function, Terms(**facts))
        self.target_context = target_context
        self.supports_pinned_items = supports_pinned_items


class Harness(Export):
    """A program of several steps, and how faithfully it can go on after a break."""

    __slots__ = ("fidelity", "mode", "supports")

    def __init__(
        self,
        name: str,
        description: str,
        function: Callable[..., Any],
        terms: Terms,
        *,
        mode: str,
        fidelity: str,
        supports: Iterable[str],
    ) -> None:
        super().__init__(name, description, function, terms)
        refuse_other("fidelity", fidelity, FIDELITIES)
        self.mode = mode
        self.fidelity = fidelity
        self.supports = tuple(supports)


class Tool(Export):
    """One declared tool."""

    __slots__ = ("effect", "input_schema", "output_schema", "streaming")

    def __init__(
        self,
        name: str,
        description: str,
        function: Callable[..., Any],
        input_schema: Mapping[str, Any] | None = None,
        terms: Terms | None = None,
        *,
        output_schema: Mapping[str, Any] | None = None,
        effect: str = "unknown",
        streaming: bool | None = None,
    ) -> None:
        super().__init__(name, description, function, terms)
        refuse_other("effect", effect, EFFECTS)
        self.input_schema = {"type": "object"} if input_schema is None else dict(input_schema)
        self.output_schema = None if output_schema is None else dict(output_schema)
        self.effect = effect
        self.streaming = _yields(function) if streaming is None else streaming

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
            if hasattr(value, "__await__") or hasattr(value, "__aiter__"):
                import asyncio

                value = asyncio.run(_awaited(value))
            return gathered(value)
        except BaseException as error:  # SystemExit too: argparse in a tool must not look like a crash
            from plugbay.sdk.errors import failure_of

            return failure_of(error)

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
    if hasattr(value, "__await__"):
        value = await value
    return iter([piece async for piece in value]) if hasattr(value, "__aiter__") else value


def _yields(function: Callable[..., Any]) -> bool:
    return bool(function.__code__.co_flags & (_GENERATOR | _ASYNC_GENERATOR))


# What a tool gives back.


class Pieces:
    """What a tool yields, put together: one text when it is texts, else a list of them.

    `__tool_value__` is what a result object of the SDK is to hosts that know plain values only; it may raise. One that
    is yielded is the whole answer.
    """

    __slots__ = ("_pieces", "_whole")

    def __init__(self) -> None:
        self._pieces: list[Any] = []
        self._whole: Any = None

    def add(self, piece: Any) -> None:
        if hasattr(piece, "__tool_value__"):
            self._whole = piece
        else:
            self._pieces.append(piece)

    def whole(self, value: Any) -> Any:
        """The answer of a tool that returned everything at once."""
        return value.__tool_value__() if hasattr(value, "__tool_value__") else value

    def end(self) -> Any:
        """The answer, after the last piece."""
        if self._whole is not None:
            return self.whole(self._whole)
        return "".join(self._pieces) if all(isinstance(piece, str) for piece in self._pieces) else self._pieces


def gathered(value: Any) -> Any:
    """The value that a tool's result stands for, all of it."""
    pieces = Pieces()
    if not hasattr(value, "__next__"):
        return pieces.whole(value)
    for piece in value:
        pieces.add(piece)
    return pieces.end()


# For whoever takes declarations.


def refuse_function(what: str, name: object) -> None:
    """A decorator that takes a name was given the function itself."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"write @plugin.{what}() with parentheses")


def refuse_object(what: str, function: Any) -> None:
    """Only a function's parameters can be seen without running it."""
    if not hasattr(function, "__code__") or hasattr(function, "__self__"):
        raise TypeError(f"a {what} must be a plain function, not {function!r}; wrap it in one")


def declare(declared: dict[str, Any], what: str, name: str, thing: object) -> None:
    """Keep what was declared under its name."""
    if name in declared:
        raise ValueError(f"two {what} are called {name!r}")
    declared[name] = thing


def refuse_other(what: str, value: object, known: tuple[str, ...]) -> None:
    """One of a few words was meant."""
    if value not in known:
        raise ValueError(f"{what} is one of {', '.join(known)}, not {value!r}")


def named_after(function: Any, otherwise: str) -> str:
    """The name of a function; a lambda has none, and neither has a callable object."""
    name = getattr(function, "__name__", "")
    return name if name.isidentifier() else otherwise
