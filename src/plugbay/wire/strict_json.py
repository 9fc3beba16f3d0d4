"""Strict JSON for code that must start fast: the codec a plugin reads and writes messages with.

Owns the `Codec` interface, the rules of encodable values, and the standard-library codec. It accepts the grammar
without NaN, Infinity and lone surrogates, within the limits of `json_gate`; of a repeated key the last counts. Every
accepted value can be encoded again.

The codec works without the `json` package, which costs a plugin 8 ms at start-up: it drives the accelerator
that `json` itself drives, after checking that it behaves, and falls back to `json` when it does not.
"""

from __future__ import annotations

from plugbay.model.values import Value
from plugbay.wire.json_gate import (
    DEFAULT_LIMITS,
    MAX_INTEGER,
    MIN_INTEGER,
    JsonLimits,
    Malformed,
    gate,
    plain_text,
    plainly_flat,
    refuse_wide_numbers,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar, NoReturn, Protocol

    class Codec(Protocol):
        """Reads and writes JSON for a machine. `raw` is the codec's own form of one unread value.

        What a decoder accepted is good throughout: `load` succeeds on every raw field of it.
        """

        @property
        def raw_type(self) -> type:
            """The type of raw values, where they have one of their own; it can be joined with bytes."""

        def decoder(self, fields: tuple[str, ...], raw: tuple[str, ...] = ()) -> Callable[..., Any]:
            """A function of a frame, and of whether the frame is known to be `plain_text`."""

        def decode(self, frame: bytes) -> Any: ...
        def encode(self, value: Any) -> bytes: ...
        def load(self, raw: Any) -> Any: ...
        def dump(self, value: Any) -> Any: ...


__all__ = [
    "ABSENT",
    "DEFAULT_LIMITS",
    "JsonLimits",
    "Malformed",
    "StdlibCodec",
    "Unencodable",
    "gate",
    "stdlib_codec",
]

WHITESPACE = b" \t\r\n"
"""The whitespace of JSON; fewer bytes than `bytes.strip` removes by default."""


class _Absent:
    """The type of `ABSENT`."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()
"""A key that was not there, as opposed to one that holds null."""


class Unencodable(ValueError):
    """The value has no JSON form: the fault of its maker."""


class Engine:
    """The functions of the codec: read the value a text starts with, the same with objects as lists of pairs,
    write a value as compact text. They raise ValueError, TypeError, StopIteration or RecursionError.
    """

    __slots__ = ("scan", "scan_pairs", "write")

    def __init__(
        self,
        scan: Callable[[str, int], tuple[Any, int]],
        scan_pairs: Callable[[str, int], tuple[Any, int]],
        write: Callable[[Any], str],
    ) -> None:
        self.scan = scan
        self.scan_pairs = scan_pairs
        self.write = write


class _NoRaw:
    """The type of no value at all."""

    __slots__ = ()


class StdlibCodec:
    """JSON without a dependency. Raw values are plain values, so `load` and `dump` have nothing to do."""

    __slots__ = ("_engine",)

    raw_type: ClassVar[type] = _NoRaw

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def decoder(self, fields: tuple[str, ...], raw: tuple[str, ...] = ()) -> Callable[..., Any]:
        """A function from a frame with one JSON object to a message; what has no key is `ABSENT`."""
        names = fields + raw
        shape = type("Message", (Value,), {"__slots__": names})
        decode = self.decode

        def read(frame: bytes, plain: bool = False) -> Any:
            document = decode(frame, plain)
            if type(document) is not dict:
                raise Malformed("not a JSON object")
            message = shape()
            for name in names:
                setattr(message, name, document.get(name, ABSENT))
            return message

        return read

    def decode(self, frame: bytes, plain: bool = False) -> Any:
        """The one JSON value in `frame`; `plain`: the frame is known to be `plain_text`."""
        body = frame.strip(WHITESPACE)
        if not (plainly_flat(body) and (plain or plain_text(body))):
            gate(body)
            refuse_wide_numbers(body)
        text = body.decode()
        try:
            if "\\" in text and ("\\ud" in text or "\\uD" in text):
                self._refuse_lone_surrogates(text)
            value, end = self._engine.scan(text, 0)
        except Malformed:
            raise
        except StopIteration as stop:
            raise Malformed(f"not JSON: no value at character {stop.value}") from None
        except (ValueError, RecursionError) as error:
            raise Malformed(f"not JSON: {error}") from None
        except SystemError:
            # Before 3.12 the accelerator takes its exception from `json.decoder`, and fails without it loaded.
            raise Malformed("not JSON") from None
        if end != len(text):
            raise Malformed(f"not JSON: something follows the value at character {end}")
        return value

    def encode(self, value: Any) -> bytes:
        """`value` as compact UTF-8 JSON."""
        try:
            encoded = self._engine.write(value).encode()
            refuse_odd_keys(value)
            if not (plainly_flat(encoded) and plain_text(encoded)):
                refuse_wide_numbers(encoded)
                gate(encoded)
        except BaseException as error:  # SystemExit too: a subclass of dict may do what it likes while it is read
            raise unencodable(value, error) from None
        return encoded

    def load(self, raw: Any) -> Any:
        """The value of a raw field."""
        return raw

    def dump(self, value: Any) -> Any:
        """The raw form of a value."""
        return value

    def _refuse_lone_surrogates(self, text: str) -> None:
        """Only an escape can bring one in, and it has no UTF-8. Pairs keep what a repeated key would hide."""
        pairs, _ = self._engine.scan_pairs(text, 0)
        try:
            self._engine.write(pairs).encode()
        except UnicodeEncodeError:
            raise Malformed("a string holds half of a surrogate pair") from None


def stdlib_codec() -> StdlibCodec:
    """The codec of a plugin."""
    return StdlibCodec(private_engine() or public_engine())


def private_engine() -> Engine | None:
    """The accelerator of `json` without `json`: 0.1 ms to import. None where it is missing or different."""
    try:
        import _json

        class Grammar:
            strict = True
            object_hook = None
            object_pairs_hook: Any = None
            parse_float = float
            parse_int = int
            parse_constant = staticmethod(_refuse_constant)

        class Pairs(Grammar):
            object_pairs_hook = list

        def write(value: Any) -> str:
            # The first argument remembers open containers; a new one each time, as a failure leaves it dirty. Without
            # one, a value that contains itself takes the whole stack, and from 3.13 on a small one ends the process.
            encoder = _json.make_encoder(
                {}, refuse_object, _json.encode_basestring, None, ":", ",", False, False, False
            )
            return "".join(encoder(value, 0))

        make_scanner: Any = _json.make_scanner
        engine = Engine(make_scanner(Grammar), make_scanner(Pairs), write)
        return engine if _behaves(engine) else None
    except Exception:  # another accelerator may differ in any way, and the public package is there
        return None


def public_engine() -> Engine:
    """The same from the `json` package."""
    import json

    plain = json.JSONDecoder(parse_constant=_refuse_constant)
    pairs = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=list)
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=refuse_object)
    return Engine(plain.raw_decode, pairs.raw_decode, encoder.encode)


_SAMPLE_TEXT = '{"a":[1,-2.5,1e+16,true,false,null,"\\n\\"\\\\é"],"b":{}}'
_SAMPLE_VALUE = {"a": [1, -2.5, 1e16, True, False, None, '\n"\\é'], "b": {}}
_SAMPLE_PAIRS = [("a", _SAMPLE_VALUE["a"]), ("b", [])]


def _behaves(engine: Engine) -> bool:
    """Whether an engine reads and writes what we rely on, and honours the two refusals we ask it for.

    No grammar error is tried: the accelerator would import all of `json` for its exception.
    """
    end = len(_SAMPLE_TEXT)
    return (
        engine.scan(_SAMPLE_TEXT, 0) == (_SAMPLE_VALUE, end)
        and engine.scan_pairs(_SAMPLE_TEXT, 0) == (_SAMPLE_PAIRS, end)
        and engine.write(_SAMPLE_VALUE) == _SAMPLE_TEXT
        and _refuses(engine.scan, "[NaN]", 0)
        and _refuses(engine.write, [float("nan")])
    )


def _refuses(function: Callable[..., Any], *arguments: Any) -> bool:
    try:
        function(*arguments)
    except ValueError:
        return True
    return False


def _refuse_constant(name: str) -> NoReturn:
    raise Malformed(f"not JSON: {name}")


class _Foreign(TypeError):
    """An encoder met a type that it does not know."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        super().__init__(f"{kind.__name__} has no JSON form")


def refuse_object(value: object) -> NoReturn:
    """For encoders that ask what to do about a type they do not know."""
    raise _Foreign(type(value))


_TEXTS = frozenset((str,))
_LEAVES = frozenset((str, int, float, bool, type(None)))


def refuse_odd_keys(value: Any) -> None:
    """Raise for a key that is not a string: the encoder would silently convert it.

    Only for values that were encoded before, hence do not contain themselves.
    """
    if type(value) in _LEAVES:
        return
    todo = [value]
    for item in todo:
        if type(item) in _LEAVES:
            continue
        if isinstance(item, dict):
            if not (_TEXTS.issuperset(map(type, item)) or all(isinstance(key, str) for key in item)):
                raise TypeError("a key is not a string")
            todo.extend(item.values())
        elif isinstance(item, (list, tuple)):
            todo.extend(item)


def unencodable(value: Any, error: BaseException) -> Unencodable:
    """Why `value` made an encoder raise `error`, and where: in the same words for every codec."""
    foreign = error.kind if isinstance(error, _Foreign) else None
    try:
        return Unencodable(_flaw(value, "", (), foreign) or str(error))
    except RecursionError:
        return Unencodable("the value nests too deeply")
    except BaseException as another:
        return Unencodable(f"reading it raised {type(another).__name__}")


def _flaw(value: Any, where: str, above: tuple[int, ...], foreign: type | None) -> str:
    """The first thing in `value` that JSON cannot say; empty when only the encoder knows."""
    at = f"at {where}: " if where else ""
    if type(value) is foreign:
        return f"{at}{foreign.__name__} has no JSON form"
    if isinstance(value, str) and not _is_text(value):
        return f"{at}a string holds half of a surrogate pair"
    if isinstance(value, float) and value - value != 0.0:
        return f"{at}{value} has no JSON form"
    if isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER:
        return f"{at}an integer needs more than 64 bits"
    if not isinstance(value, (dict, list, tuple)):
        return ""
    if id(value) in above:
        return f"{at}the value contains itself"
    odd = next((key for key in value if not isinstance(key, str)), "") if isinstance(value, dict) else ""
    if odd != "":
        return f"{at}a key is of type {type(odd).__name__}, not a string"
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        flaw = _flaw(key, where, (), None) or _flaw(item, f"{where}/{key}", (*above, id(value)), foreign)
        if flaw:
            return flaw
    return ""


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


if TYPE_CHECKING:
    _conforms: Codec = stdlib_codec()
