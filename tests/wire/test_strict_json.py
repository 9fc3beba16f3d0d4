"""The codec of a plugin: what it reads and writes, and that it comes without the `json` package."""

from __future__ import annotations

import enum
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.wire import strict_json
from plugbay.wire.strict_json import (
    ABSENT,
    Engine,
    Malformed,
    StdlibCodec,
    Unencodable,
    _behaves,
    private_engine,
    public_engine,
    stdlib_codec,
)
from tests.support.patience import PATIENCE
from tests.wire.documents import ACCEPTED, REFUSED

PRIVATE = private_engine()
assert PRIVATE is not None, "this interpreter has no usable accelerator; the tests below compare it with `json`"
CODECS = {"private": StdlibCodec(PRIVATE), "public": StdlibCodec(public_engine())}

both = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


def same(left: Any, right: Any) -> bool:
    """Equal, and of the same types all the way down: 1 is not 1.0, and 0.0 is not -0.0."""
    return repr(left) == repr(right)


def verdict(read: Any, frame: bytes) -> Any:
    """What `read` makes of a frame: a value, or `Malformed`."""
    try:
        return read(frame)
    except Malformed:
        return Malformed


@both
def test_every_good_document_has_its_value(codec: StdlibCodec) -> None:
    wrong = [document for document, value in ACCEPTED if not same(verdict(codec.decode, document), value)]
    assert wrong == []


@both
def test_every_bad_document_is_malformed_and_nothing_else(codec: StdlibCodec) -> None:
    assert [document for document in REFUSED if verdict(codec.decode, document) is not Malformed] == []


@both
def test_whatever_is_accepted_encodes_to_the_same_value(codec: StdlibCodec) -> None:
    assert [value for _, value in ACCEPTED if not same(codec.decode(codec.encode(value)), value)] == []


def test_the_corpus_is_large_enough_to_mean_something() -> None:
    assert len(ACCEPTED) + len(REFUSED) >= 120
    documents = [document for document, _ in ACCEPTED] + REFUSED
    assert len(set(documents)) == len(documents)


@both
def test_a_message_has_the_named_fields_and_no_others(codec: StdlibCodec) -> None:
    read = codec.decoder(("id", "method"), raw=("params",))
    message = read(b'{"id":1,"params":{"a":[1]},"Method":"x","other":2}')
    assert (message.id, message.method, message.params) == (1, ABSENT, {"a": [1]})
    assert not hasattr(message, "other")
    assert repr(message) == "Message(id=1, method=ABSENT, params={'a': [1]})"


@both
def test_a_null_field_is_present(codec: StdlibCodec) -> None:
    message = codec.decoder(("a", "b"))(b' {"a":null} ')
    assert message.a is None
    assert message.b is ABSENT


@both
@pytest.mark.parametrize("frame", [b"[]", b"1", b'"a"', b"null", b"", b"{", b'{"id":NaN}', b'[{"id":1}]'])
def test_a_message_is_one_object(codec: StdlibCodec, frame: bytes) -> None:
    with pytest.raises(Malformed):
        codec.decoder(("id",))(frame)


@both
def test_of_a_repeated_key_the_last_counts(codec: StdlibCodec) -> None:
    assert codec.decoder(("id",), raw=("params",))(b'{"id":1,"params":2,"id":3,"params":4}').params == 4


def test_absent_is_falsy_and_says_its_name() -> None:
    assert not ABSENT
    assert repr(ABSENT) == "ABSENT"
    assert ABSENT is not None


@both
def test_raw_values_are_plain_values(codec: StdlibCodec) -> None:
    value = {"a": 1}
    assert codec.load(value) is value
    assert codec.dump(value) is value


@both
def test_encoding_is_compact_utf_8_in_the_order_of_the_keys(codec: StdlibCodec) -> None:
    value = {"b": [1, 2.5, None, True], "a": 'é\u2028\n"\\/\x7f'}
    assert codec.encode(value) == '{"b":[1,2.5,null,true],"a":"é\u2028\\n\\"\\\\/\x7f"}'.encode()


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Text(str):
    __slots__ = ()


@both
def test_subclasses_of_json_types_are_what_they_extend(codec: StdlibCodec) -> None:
    value = {Colour.RED: Text("x"), "n": Level.LOW, "t": (1, 2)}
    assert codec.encode(value) == b'{"red":"x","n":1,"t":[1,2]}'


def loop() -> list[Any]:
    inner: list[Any] = [1]
    inner.append({"self": inner})
    return inner


def tower(height: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(height):
        value = [value]
    return value


UNENCODABLE: list[tuple[Any, str]] = [
    (float("nan"), "nan has no JSON form"),
    ({"a": [0, float("inf")]}, "at /a/1: inf has no JSON form"),
    ([None, -float("inf")], "at /1: -inf has no JSON form"),
    ("\ud800", "half of a surrogate pair"),
    ({"k": "x\udfff"}, "at /k: a string holds half of a surrogate pair"),
    ({"\ud800": 1}, "half of a surrogate pair"),
    ({1: 2}, "a key is of type int, not a string"),
    ({1.5: 2}, "a key is of type float, not a string"),
    ({None: 2}, "a key is of type NoneType, not a string"),
    ({True: 2}, "a key is of type bool, not a string"),
    ({(): 2}, "a key is of type tuple, not a string"),
    ([{"a": ({"b": 1, 2: 3},)}], "at /0/a/0: a key is of type int, not a string"),
    (2**64, "an integer needs more than 64 bits"),
    ({"n": -(2**63) - 1}, "at /n: an integer needs more than 64 bits"),
    (10**5000, "an integer needs more than 64 bits"),
    (object(), "object has no JSON form"),
    ({"a": {"b": [1, object()]}}, "at /a/b/1: object has no JSON form"),
    ([range(3)], "at /0: range has no JSON form"),
    (ABSENT, "_Absent has no JSON form"),
    (1j, "complex has no JSON form"),
    (loop(), "at /1/self: the value contains itself"),
    (tower(100_000), "the value nests too deeply"),
]


@both
@pytest.mark.parametrize(("value", "why"), UNENCODABLE, ids=[why for _, why in UNENCODABLE])
def test_a_value_without_a_json_form_is_refused_with_the_reason_and_the_place(
    codec: StdlibCodec, value: Any, why: str
) -> None:
    with pytest.raises(Unencodable) as refused:
        codec.encode(value)
    assert str(refused.value).endswith(why)


@both
@pytest.mark.parametrize("how", [KeyError, SystemExit])
def test_a_value_that_raises_while_it_is_read_is_refused(codec: StdlibCodec, how: type[BaseException]) -> None:
    class Stubborn(dict[str, Any]):
        def items(self) -> Any:
            raise how("not now")

        keys = values = __iter__ = items

    with pytest.raises(Unencodable, match=how.__name__):
        codec.encode({"a": Stubborn(b=1)})


@both
@pytest.mark.parametrize("value", [{1}, b"x", Path("/"), {"a": 1}.keys()])
def test_types_beyond_json_are_refused(codec: StdlibCodec, value: Any) -> None:
    with pytest.raises(Unencodable, match="has no JSON form"):
        codec.encode([value])


@both
def test_a_failed_encoding_leaves_nothing_behind(codec: StdlibCodec) -> None:
    shared = {"a": [1]}
    with pytest.raises(Unencodable):
        codec.encode([shared, object()])
    assert codec.encode([shared, shared]) == b'[{"a":[1]},{"a":[1]}]'


@pytest.mark.parametrize("attribute", ["make_scanner", "make_encoder", "encode_basestring"])
def test_an_accelerator_that_lacks_a_part_is_not_used(monkeypatch: pytest.MonkeyPatch, attribute: str) -> None:
    monkeypatch.delattr(f"_json.{attribute}")
    assert private_engine() is None


def test_an_accelerator_that_takes_other_arguments_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("_json.make_encoder", lambda: None)
    assert private_engine() is None


def test_without_the_accelerator_the_public_package_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "_json", None)
    assert private_engine() is None
    assert stdlib_codec().decode(b'{"a":1}') == {"a": 1}


LOOSE_READER = json.JSONDecoder().raw_decode
LOOSE_WRITER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@pytest.mark.parametrize(
    "engine",
    [
        Engine(lambda text, at: (None, len(text)), PRIVATE.scan_pairs, PRIVATE.write),
        Engine(PRIVATE.scan, PRIVATE.scan, PRIVATE.write),
        Engine(PRIVATE.scan, PRIVATE.scan_pairs, json.dumps),
        Engine(LOOSE_READER, PRIVATE.scan_pairs, PRIVATE.write),
        Engine(PRIVATE.scan, PRIVATE.scan_pairs, LOOSE_WRITER),
    ],
    ids=["reads wrong", "hides repeated keys", "writes wrong", "reads NaN", "writes NaN"],
)
def test_an_engine_that_behaves_differently_is_noticed(engine: Engine) -> None:
    assert not _behaves(engine)


CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
from plugbay.wire import content_length, lines, strict_json
codec = strict_json.stdlib_codec()
message = codec.decoder(("id",), ("result",))(b'{"id":1,"result":["\\u00e9",1.5]}')
assert codec.encode(message.result) == b'["\\xc3\\xa9",1.5]'
print(*sorted(set(sys.modules) - before))
"""
ALLOWED = set(
    """__future__ _json plugbay plugbay.model plugbay.model.errors plugbay.model.values plugbay.wire
    plugbay.wire.content_length plugbay.wire.json_gate plugbay.wire.lines
    plugbay.wire.strict_json""".split()
)


def test_reading_and_writing_a_message_loads_nothing_but_this_layer_and_the_accelerator() -> None:
    root = str(Path(strict_json.__file__).parents[2])
    command = [sys.executable, "-I", "-S", "-c", CHILD, root]
    child = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert child.returncode == 0, child.stderr
    assert set(child.stdout.split()) - ALLOWED == set()


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_every_json_value_survives_encoding_and_decoding(value: Any) -> None:
    for codec in CODECS.values():
        assert same(codec.decode(codec.encode(value)), value)


ALPHABET = [
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b":",
    b'"',
    b"\\",
    b"u",
    b"d8",
    b"00",
    b"1",
    b"e",
    b"-",
    b".",
    b" ",
    b"a",
]


@given(st.lists(st.sampled_from(ALPHABET) | st.binary(max_size=2), max_size=14).map(b"".join))
def test_both_engines_give_the_same_verdict_and_the_same_value(frame: bytes) -> None:
    private, public = (verdict(codec.decode, frame) for codec in CODECS.values())
    assert same(private, public)


@pytest.mark.parametrize("text", ["[1 2]", '{"bad" 1}', '{"a":', "[1,]", '{"a":1,}', '"\\x"', "nul", "{1:2}"])
def test_a_bad_document_is_malformed_even_where_the_json_package_was_never_loaded(text: str) -> None:
    """Before Python 3.12 the accelerator fails in its own way there, and a plugin has exactly that state."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from plugbay.wire.strict_json import Malformed, stdlib_codec\n"
        "try: stdlib_codec().decode(sys.argv[2].encode())\n"
        "except Malformed: print('malformed')\n"
    )
    source = str(Path(strict_json.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, source, text], capture_output=True, text=True, check=False
    )
    assert done.stdout == "malformed\n", done.stderr
