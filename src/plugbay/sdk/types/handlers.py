"""Handlers: the author's functions by kind of export, and how the input of a tool becomes its arguments.

Annotations are left to `signature`, which is loaded when a tool with more than plain types is first called. Every
plugin loads this module, so it stays small.
"""

from __future__ import annotations

from plugbay.model.errors import Code, Failure, Origin
from plugbay.sdk.declarations import defaults, function_name, parameters, refuse_other, seconds, table, texts, unwrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypedDict, TypeVar

    from plugbay.sdk.types.signature import Signature

    Function = TypeVar("Function", bound=Callable[..., Any])

    class Facts(TypedDict, total=False):
        """The keywords that every kind of export takes."""

        capabilities: Iterable[str]
        config_schema: Mapping[str, Any] | None
        execution_class: str | None
        max_concurrency: int | None
        timeout: float | None


_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200
"""Code flags, as in `inspect`, which costs 27 ms to import."""

EFFECTS = ("read_only", "idempotent_write", "non_idempotent_write", "unknown")
"""The effect of a tool: only the first two may be repeated without asking a person."""

FIDELITIES = ("lossless", "checkpoint", "prompt_replay", "summary_reseed")
"""How a harness continues after a break: exactly, from a checkpoint, from the events, or from a summary."""

CLASSES = ("inline", "worker", "isolated")
"""Where an export runs: with others that are trusted, in a process shared with its own kind, in one of its own."""


QUICK_SECONDS = 0.000_1
"""A handler that takes less is quick: it is done before another thread would have begun with it."""


class Handler:
    """One function that was declared for something."""

    __slots__ = ("function", "is_async", "pace", "takes_ctx")

    def __init__(self, function: Callable[..., Any]) -> None:
        called: Any = function if hasattr(function, "__code__") else type(function).__call__
        is_python = hasattr(called, "__code__")
        self.function = function
        self.is_async = is_python and bool(called.__code__.co_flags & (_COROUTINE | _ASYNC_GENERATOR))
        self.pace = QUICK_SECONDS
        """Seconds that it took lately."""
        self.takes_ctx = is_python and "ctx" in (*parameters(called), *parameters(unwrap(called)))


class Terms:
    """Limits and needs of an export, for hosts that read them beforehand; None leaves the choice to the host.

    `timeout` is in seconds. `max_concurrency` calls of it run at once, and one more is refused. `capabilities` are
    those of this export, beside those of the whole plugin.
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
        **unknown: object,
    ) -> None:
        if unknown:
            raise TypeError(f"no declaration of an export has an argument {', '.join(unknown)}")
        if execution_class is not None:
            refuse_other("execution_class", execution_class, CLASSES)
        if max_concurrency is not None and (type(max_concurrency) is not int or max_concurrency < 1):
            raise ValueError(f"max_concurrency is a number of calls, not {max_concurrency!r}")
        self.capabilities = texts("capabilities", capabilities)
        self.config_schema = table("config_schema", config_schema)
        self.execution_class = execution_class
        self.max_concurrency = max_concurrency
        self.timeout = None if timeout is None else seconds("timeout", timeout)


class Export(Handler):
    """A function that is offered under a name. Without a description, the first paragraph of its docstring is one."""

    __slots__ = ("description", "name", "terms")

    def __init__(self, name: str, description: str, function: Callable[..., Any], terms: Terms | None = None) -> None:
        super().__init__(function)
        self.name = name
        self.description = description or _first_paragraph(getattr(function, "__doc__", None) or "")
        self.terms = terms or Terms()


def _first_paragraph(doc: str) -> str:
    return " ".join(doc.strip().partition("\n\n")[0].split())


class Compactor(Export):
    """A compactor: its kind, and whether it keeps pinned items."""

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
        super().__init__(export or function_name(function, "compactor"), description, function, Terms(**facts))
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
        self.supports = texts("supports", supports)


_UNREAD = object()
"""For a schema that no one has asked for yet; None is a tool without one."""


class Tool(Export):
    """One declared tool. Schemas that its author does not give follow from its annotations."""

    __slots__ = ("_given_input", "_output_schema", "_plainly", "_signature", "effect", "streaming")

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
        self._given_input = table("input_schema", input_schema)
        self._output_schema: Any = _UNREAD if output_schema is None else table("output_schema", output_schema)
        self._signature: Signature | None = None
        self._plainly: PlainSignature | None = None
        self.effect = effect
        self.streaming = _yields(unwrap(function)) if streaming is None else streaming

    @property
    def signature(self) -> Signature:
        """The signature of the function; read once, when it is first needed."""
        if self._signature is None:
            from plugbay.sdk.types.signature import Signature

            self._signature = Signature(unwrap(self.function))
        return self._signature

    @property
    def plainly(self) -> PlainSignature:
        """The same as far as it can be seen without shapes; found out once, too."""
        if self._plainly is None:
            self._plainly = PlainSignature(unwrap(self.function))
        return self._plainly

    @property
    def input_schema(self) -> dict[str, Any]:
        return self.signature.input_schema() if self._given_input is None else self._given_input

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The schema of every result; None without an annotation. Found out once: calls need it, too."""
        if self._output_schema is _UNREAD:
            self._output_schema = self.signature.output_schema()
        schema: dict[str, Any] | None = self._output_schema
        return schema

    @property
    def notes(self) -> list[str]:
        """Annotations that could not be read, so their parameters are not checked."""
        return self.signature.notes

    @property
    def misfits(self) -> list[str]:
        """Defaults that do not fit their annotations."""
        return self.signature.misfits

    def arguments(self, given: Any, context: Mapping[str, Any]) -> dict[str, Any] | Failure:
        """The input as keyword arguments, checked and converted as the annotations say; else everything wrong with it.

        A parameter called `input` takes the whole input, and one called `context` the host's context of the call.
        """
        if type(given) is dict and self.plainly.takes(given):
            return given
        from plugbay.sdk.types.shapes import Problems

        problems, signature = Problems(), self.signature
        arguments = signature.read({} if given is None and not signature.whole else given, problems)
        if problems.count:
            detail = {"plugin_code": Code.INVALID_INPUT, "details": problems.told()}
            return Failure(Code.INVALID_INPUT, str(problems), origin=Origin.PLUGIN, detail=detail)
        return {**arguments, "context": dict(context)} if signature.takes_context else arguments

    def written(self, value: Any) -> Any:
        """A result as JSON, by its annotation; a value without one stays unchanged."""
        return value if self.plainly.gives else self.signature.output.write(value)


# Most tools take and return plain JSON values. Those are checked without shapes, which cost 2 ms of start-up.

_SCALARS = {"str": str, "int": int, "float": float, "bool": bool}

_PLAIN_WORDS = frozenset((*_SCALARS, "dict", "list", "None", "Any", "object", "typing.Any"))
"""The parts of the annotation of a plain value."""


_ANYTHING = object()
"""For a parameter without an annotation."""

PLAIN = frozenset((dict, str, list, int, float, bool, type(None)))
"""The types of JSON values: nothing to await, to iterate or to convert."""


class PlainSignature:
    """The parameters and the result of a function that are plain JSON values."""

    __slots__ = ("_needed", "_types", "gives")

    def __init__(self, function: Any) -> None:
        annotations, known = _annotations(function), function.__globals__
        names = frozenset(parameters(function)) - {"ctx"}
        self._needed = names - defaults(function).keys()
        self._types: dict[str, Any] | None = None
        """The types of each parameter; None where a shape is needed."""
        if annotations is not None and names != {"input"} and "context" not in names:
            self._types = {name: _type(annotations, name, known) for name in names}
        self.gives = annotations is not None and _is_plain(annotations.get("return", "Any"))
        """Whether the result has no annotation, or that of a plain JSON value."""

    def takes(self, given: dict[str, Any]) -> bool:
        """Whether an input certainly fits unchanged; if False, shapes have to decide."""
        types = self._types
        if types is None:
            return False
        for name, value in given.items():
            wanted = types.get(name)
            if wanted is not _ANYTHING and type(value) is not wanted:
                return False
        return len(given) == len(types) or self._needed <= given.keys()


def _type(annotations: dict[str, Any], name: str, known: dict[str, Any]) -> Any:
    said = annotations.get(name, _ANYTHING)
    return _SCALARS.get(said) if isinstance(said, str) and said not in known else said


def _annotations(function: Any) -> dict[str, Any] | None:
    """Where Python evaluates them late, one that cannot be is an error for all of them."""
    try:
        return dict(function.__annotations__)
    except Exception:
        return None


def _is_plain(said: Any) -> bool:
    text = said if isinstance(said, str) else said.__name__ if type(said) is type else repr(said)
    return _PLAIN_WORDS.issuperset(text.replace("[", " ").replace("]", " ").replace(",", " ").replace("|", " ").split())


def _yields(function: Callable[..., Any]) -> bool:
    return bool(function.__code__.co_flags & (_GENERATOR | _ASYNC_GENERATOR))


# Results of tools.


class Screen(Handler):
    """The handler that draws a screen, and its smallest size."""

    __slots__ = ("min_height", "min_width")

    def __init__(self, function: Callable[..., Any], min_size: tuple[int, int]) -> None:
        super().__init__(function)
        self.min_width, self.min_height = min_size


class Listener(Handler):
    """A handler of keys or the mouse of a screen; without names, of all of them."""

    __slots__ = ("names", "releases", "screen")

    def __init__(
        self, function: Callable[..., Any], screen: str, names: tuple[str, ...] = (), releases: bool = False
    ) -> None:
        super().__init__(function)
        self.screen = screen
        self.names = names
        self.releases = releases


class Command(Handler):
    """A handler of a command line or an action, and whether it may run beside other handlers."""

    __slots__ = ("concurrent",)

    def __init__(self, function: Callable[..., Any], concurrent: bool) -> None:
        super().__init__(function)
        self.concurrent = concurrent


class Pieces:
    """The joined pieces of a tool: one text if all are texts, else a list.

    `__tool_value__` is the plain value of a result object of the SDK; it may raise. A result object that is yielded is
    the whole answer.
    """

    __slots__ = ("_pieces", "_whole", "_write")

    def __init__(self, write: Callable[[Any], Any] = lambda value: value) -> None:
        """`write` makes JSON of a value that was returned."""
        self._pieces: list[Any] = []
        self._whole: Any = None
        self._write = write

    def add(self, piece: Any) -> None:
        if hasattr(piece, "__tool_value__"):
            self._whole = piece
        else:
            self._pieces.append(piece)

    def whole(self, value: Any) -> Any:
        """The answer of a tool that returned everything at once."""
        return _whole(value, self._write)

    def end(self) -> Any:
        """The answer, after the last piece."""
        if self._whole is not None:
            return self.whole(self._whole)
        return "".join(self._pieces) if all(isinstance(piece, str) for piece in self._pieces) else self._pieces


def join_pieces(value: Any, write: Callable[[Any], Any] = lambda value: value) -> Any:
    """The value that a tool's result stands for, all of it."""
    if not hasattr(value, "__next__"):
        return _whole(value, write)
    pieces = Pieces(write)
    for piece in value:
        pieces.add(piece)
    return pieces.end()


def _whole(value: Any, write: Callable[[Any], Any]) -> Any:
    return value.__tool_value__() if hasattr(value, "__tool_value__") else write(value)
