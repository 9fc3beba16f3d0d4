"""The codec of the host: as strict as a plugin's, on the same documents, with payloads left raw."""

from __future__ import annotations

import datetime
import enum
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import ABSENT, Malformed, Unencodable, stdlib_codec
from tests.wire.documents import ACCEPTED, REFUSED
from tests.wire.test_strict_json import UNENCODABLE, json_values, same, verdict

MEBIBYTE = 1024 * 1024

FAST = MsgspecCodec()
STDLIB = stdlib_codec()
FIELDS = ("id", "method", "error")
RAW_FIELDS = ("params", "result")
READ = FAST.decoder(FIELDS, RAW_FIELDS)
STDLIB_READ = STDLIB.decoder(FIELDS, RAW_FIELDS)


def load(frame: bytes) -> Any:
    return FAST.load(msgspec.Raw(frame))


@pytest.mark.parametrize("read", [FAST.decode, load])
def test_every_good_document_has_its_value(read: Callable[[bytes], Any]) -> None:
    assert [document for document, value in ACCEPTED if not same(verdict(read, document), value)] == []


def test_every_bad_document_is_malformed_and_nothing_else() -> None:
    assert [document for document in REFUSED if verdict(FAST.decode, document) is not Malformed] == []


@pytest.mark.parametrize("key", [b"id", b"result", b"unknown"])
def test_a_bad_value_is_malformed_wherever_it_stands_even_if_nobody_reads_it(key: bytes) -> None:
    frames = [b'{"%b":%b}' % (key, document) for document in REFUSED]
    assert [frame for frame in frames if verdict(READ, frame) is not Malformed] == []


def test_whatever_is_accepted_encodes_to_the_same_value() -> None:
    assert [value for _, value in ACCEPTED if not same(FAST.decode(FAST.encode(value)), value)] == []


def test_a_raw_field_is_the_bytes_of_the_frame() -> None:
    message = READ(b'{"id":7,"result": {"b": 1.0, "a":[ ]} ,"unknown":{"x":1}}')
    assert (message.id, message.method, message.error, message.params) == (7, ABSENT, ABSENT, ABSENT)
    assert isinstance(message.result, msgspec.Raw)
    assert bytes(message.result) == b'{"b": 1.0, "a":[ ]}'
    assert FAST.load(message.result) == {"b": 1.0, "a": []}
    assert FAST.encode(message.result) == b'{"b": 1.0, "a":[ ]}'
    assert not hasattr(message, "unknown")


def test_a_null_payload_is_present_and_a_missing_one_is_not() -> None:
    message = READ(b' {"result":null,"error":null} ')
    assert FAST.load(message.result) is None
    assert message.error is None
    assert message.params is ABSENT


@pytest.mark.parametrize("frame", [b"[]", b"1", b'"a"', b"null", b"", b"{", b'{"id":NaN}', b'[{"id":1}]'])
def test_a_message_is_one_object(frame: bytes) -> None:
    with pytest.raises(Malformed):
        READ(frame)


def test_keys_are_exact_and_of_a_repeated_one_the_last_counts() -> None:
    message = READ(rb'{"ID":1,"id":2,"\u0069d":3,"result":4,"result":5}')
    assert (message.id, FAST.load(message.result)) == (3, 5)


def test_raw_values_are_spliced_into_what_is_encoded() -> None:
    raw = READ(b'{"params":[ 1 ]}').params
    assert FAST.encode({"input": raw, "n": None}) == b'{"input":[ 1 ],"n":null}'
    assert bytes(FAST.dump({"input": raw})) == b'{"input":[ 1 ]}'


def test_encoding_is_compact_utf_8_in_the_order_of_the_keys() -> None:
    value = {"b": [1, 2.5, None, True], "a": 'é\u2028\n"\\/\x7f'}
    assert FAST.encode(value) == STDLIB.encode(value)


class Colour(enum.StrEnum):
    RED = "red"


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Real(float):
    pass


def test_subclasses_of_json_types_are_what_they_extend() -> None:
    value = {Colour.RED: Text("x"), Text("n"): [Whole(1), Real(2.5), Colour.RED], "t": (1, 2)}
    assert FAST.encode(value) == STDLIB.encode(value) == b'{"red":"x","n":[1,2.5,"red"],"t":[1,2]}'


@pytest.mark.parametrize(("value", "why"), UNENCODABLE, ids=[why for _, why in UNENCODABLE])
def test_a_value_without_a_json_form_is_refused_with_the_reason_and_the_place(value: Any, why: str) -> None:
    for write in (FAST.encode, FAST.dump):
        with pytest.raises(Unencodable) as refused:
            write(value)
        assert str(refused.value).endswith(why)


LONG = "x" * 5_000


@pytest.mark.parametrize(
    "value",
    [Real("nan"), [Whole(2**64)], {Whole(1): 2}, ["null", (float("inf"),)], [LONG, float("nan")], [float("inf"), LONG]],
)
def test_a_subclass_or_a_null_nearby_hides_nothing(value: Any) -> None:
    for codec in (FAST, STDLIB):
        with pytest.raises(Unencodable):
            codec.encode(value)


def test_null_in_a_value_is_no_reason_to_refuse_it() -> None:
    value = {"null": [None, "null", 1.5, {"deep": None}]}
    assert FAST.encode(value) == STDLIB.encode(value)


def test_types_that_msgspec_knows_are_written_its_way() -> None:
    assert FAST.encode([datetime.date(2024, 2, 29), b"x"]) == b'["2024-02-29","eA=="]'


def loaded(codec: Any, message: Any) -> Any:
    """A message as plain values; `load` must not refuse what the decoder accepted."""
    if message is Malformed:
        return message
    raw = {name: getattr(message, name) for name in RAW_FIELDS}
    fields = {name: getattr(message, name) for name in FIELDS}
    return fields | {name: value if value is ABSENT else codec.load(value) for name, value in raw.items()}


def agree(frame: bytes) -> bool:
    """Whether both codecs say the same about a frame, as a document and as a message."""
    as_document = same(verdict(FAST.decode, frame), verdict(STDLIB.decode, frame))
    fast, stdlib = verdict(READ, frame), verdict(STDLIB_READ, frame)
    return as_document and same(loaded(FAST, fast), loaded(STDLIB, stdlib))


@pytest.mark.parametrize(
    "shape",
    [
        b"%b",
        b'{"id":%b}',
        b'{"params":%b}',
        b'{"other":%b}',
        b'{"id":%b,"id":1}',
        b'{"params":%b,"params":0}',
        b'{"other":%b,"other":[0]}',
    ],
)
def test_both_codecs_agree_on_every_document_alone_and_anywhere_in_a_message(shape: bytes) -> None:
    documents = [document for document, _ in ACCEPTED if len(document) < MEBIBYTE] + REFUSED
    assert [document for document in documents if not agree(shape % document)] == []


TOKENS = [
    *(
        b"[",
        b"]",
        b"{",
        b"}",
        b",",
        b":",
        b'"',
        b"\\",
        b" ",
        b"\n",
        b"null",
        b"true",
        b"NaN",
        b"-",
        b".",
        b"e",
        b"E+",
    ),
    *(
        b"0",
        b"1",
        b"999",
        b"1e999",
        b"9223372036854775808",
        b"18446744073709551616",
        b'"id":',
        b'"result":',
        b'"a"',
    ),
    *(
        b"\\u0041",
        b"\\ud83d\\ude00",
        b"\\ud800",
        b"\\udc00",
        b"\\\\",
        b'\\"',
        b"\xc3\xa9",
        b"\xff",
        b"\x00",
        b"\x1f",
    ),
]


@given(st.lists(st.sampled_from(TOKENS), max_size=12).map(b"".join))
def test_both_codecs_agree_on_any_soup_of_tokens(soup: bytes) -> None:
    assert agree(soup)
    assert agree(b'{"result":' + soup + b"}")


@given(json_values, st.data())
def test_both_codecs_agree_on_a_good_document_with_one_bad_byte(value: Any, data: st.DataObject) -> None:
    frame = json.dumps({"id": 1, "result": value}, ensure_ascii=data.draw(st.booleans())).encode()
    at = data.draw(st.integers(0, len(frame)))
    damage = data.draw(st.sampled_from(TOKENS) | st.binary(max_size=1))
    assert agree(frame)
    assert agree(frame[:at] + damage + frame[at + data.draw(st.integers(0, 2)) :])


@given(json_values)
def test_both_codecs_read_what_either_writes(value: Any) -> None:
    for frame in (FAST.encode(value), STDLIB.encode(value)):
        assert same(FAST.decode(frame), value)
        assert same(STDLIB.decode(frame), value)
        assert same(FAST.load(FAST.dump(FAST.decode(frame))), value)


@given(st.text("0123456789.eE+-", min_size=1, max_size=30))
def test_both_codecs_agree_on_anything_that_looks_like_a_number(text: str) -> None:
    assert agree(text.encode())
    assert agree(b'{"result":[' + text.encode() + b"]}")
