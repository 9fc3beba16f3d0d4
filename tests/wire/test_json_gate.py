"""What the gate stops before a parser sees it, what it lets through, and how little either costs."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.wire import json_gate
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import (
    DEFAULT_LIMITS,
    USUAL_DEPTH,
    JsonLimits,
    Malformed,
    gate,
    plain_text,
    plainly_flat,
    refuse_wide_numbers,
)
from plugbay.wire.strict_json import StdlibCodec, private_engine, public_engine
from tests.support.requirements import requirement
from tests.wire.documents import ACCEPTED, nested
from tests.wire.vectors import INVALID, OPEN, VALID

MEBIBYTE = 1024 * 1024
SMALL = JsonLimits(depth=4, brackets=10, commas=20)


def passes(frame: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> bool:
    try:
        gate(frame, limits)
    except Malformed:
        return False
    return True


def test_the_limits_are_the_published_ones() -> None:
    assert JsonLimits(depth=64, brackets=100_000, commas=500_000, sparse=16) == DEFAULT_LIMITS


CELL = b'[{"x":379,"y":99},{"symbol":"#","fg":{"r":1,"g":2,"b":3},"bg":{"r":4,"g":5,"b":6},"modifier":0}],'


@pytest.mark.parametrize("cells", [38_000, 140_000])
def test_a_large_screen_of_coloured_cells_passes(cells: int) -> None:
    gate(b'{"cells":[' + CELL * cells + b"[]]}")


@pytest.mark.parametrize(
    ("item", "why"), [(b"[] ", "more than 786432 arrays"), (b'[""       ],', "arrays and objects"), (b"1,", "commas")]
)
def test_a_large_document_that_is_denser_than_any_screen_is_refused(item: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        gate(b"[" + item * ((16 << 20) // len(item)) + b"1]")


def test_everything_acceptable_passes() -> None:
    for document, _ in ACCEPTED:
        gate(document)
        refuse_wide_numbers(document)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b'"\xff"', "not UTF-8"),
        (b'"' + b"x" * 10_000 + b'\xed\xa0\x80"', "not UTF-8"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8"),
        ('{"a":1}'.encode("utf-16-le"), "not UTF-8"),
        ('{"a":1}'.encode("utf-16-be"), "not UTF-8"),
        ('{"a":1}'.encode("utf-32-le"), "not UTF-8"),
        (nested(65), "deeper than 64"),
        (b'{"a":[' * 32 + b"[1]" + b"]}" * 32, "deeper than 64"),
        (b"[" * 129, "without a partner"),
        (b"[" + b"[]," * 100_000 + b"[]]", "more than 100000 arrays"),
        (b"[" + b"1," * 500_001 + b"1]", "more than 500000 commas"),
    ],
    ids=lambda case: str(case)[:20],
)
def test_the_gate_says_what_it_refuses(frame: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        gate(frame)


@given(st.lists(st.sampled_from([b"[" * 40, b"]" * 40, b"[", b"]", b"[]" * 60]), max_size=60).map(b"".join))
def test_the_depth_of_many_brackets_is_that_of_each(skeleton: bytes) -> None:
    level = deepest = 0
    for bracket in skeleton:
        level += 1 if bracket == ord("[") else -1
        deepest = max(deepest, level)
    for most in (max(0, deepest - 1), deepest, 64):
        assert json_gate._nests_deeper(skeleton, most) is (deepest > most)


@pytest.mark.parametrize("depth", [*range(2, USUAL_DEPTH + 3), 16, 63, 64, 65, 66, 1000])
@pytest.mark.parametrize("limit", [3, USUAL_DEPTH - 1, USUAL_DEPTH, USUAL_DEPTH + 1, 64])
def test_among_many_brackets_the_depth_is_found_exactly(depth: int, limit: int) -> None:
    shallow = b"[]," * 200
    frame = b"[" + shallow + nested(depth - 1) + b"," + shallow[:-1] + b"]"
    assert passes(frame, JsonLimits(depth=limit)) == (depth <= limit)


@pytest.mark.parametrize("text", [b"[{", b"]}", b",", b'\\"[', b"\\\\[", b'\\"', b'\\\\\\\\\\"'])
def test_brackets_and_commas_inside_strings_do_not_count(text: bytes) -> None:
    gate(b'["' + text * 600_000 + b'",1]')
    gate(b'["' + b'","'.join([text] * 15) + b'"]', SMALL)


def test_a_string_that_ends_in_a_backslash_does_not_hide_what_follows() -> None:
    assert not passes(rb'["\\",' + nested(10) + b"]", SMALL)
    assert passes(rb'["\",' + nested(10) + b'"]', SMALL)
    assert not passes(rb'["\\\\\\",' + nested(10) + b"]", SMALL)
    assert passes(rb'["\\\",' + nested(10) + b'"]', SMALL)


def test_strings_next_to_each_other_do_not_hide_what_follows() -> None:
    assert not passes(b'["","[","","",' + nested(10) + b"]", SMALL)
    assert not passes(b'{"[":"","]":' + nested(10) + b"}", SMALL)


keys = st.text('[{,"\\a', max_size=3)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text('[]{},:"\\ ax', max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=25,
)


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


def containers_in(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, dict | list) + sum(map(containers_in, inner))


def commas_in(value: object) -> int:
    inner = list(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
    return max(0, len(inner) - 1) + sum(map(commas_in, inner))


@given(json_values, st.sampled_from([(",", ":"), (" , ", " : ")]))
def test_valid_documents_are_judged_by_their_true_size(value: object, separators: tuple[str, str]) -> None:
    frame = json.dumps(value, separators=separators).encode()
    fits = (
        depth_of(value) <= SMALL.depth and containers_in(value) <= SMALL.brackets and commas_in(value) <= SMALL.commas
    )
    assert passes(frame, SMALL) == fits or len(frame) <= 2 * SMALL.depth


@given(st.lists(st.sampled_from([b"[", b"]", b"{", b"}", b'"', b"\\", b",", b"1", b" "]), max_size=60))
def test_nothing_but_malformed_comes_out_of_it(pieces: list[bytes]) -> None:
    passes(b"".join(pieces), SMALL)


class Worked(bytes):
    """Bytes that count how many of them the gate works through, result by result."""

    total = 0
    rounds = 0

    def replace(self, *arguments: object) -> Worked:
        Worked.rounds += 1
        return self._counted(super().replace(*arguments))  # type: ignore[arg-type]

    def translate(self, *arguments: object) -> Worked:
        return self._counted(super().translate(*arguments))  # type: ignore[arg-type]

    def count(self, *arguments: object) -> int:
        Worked.total += len(self)
        return super().count(*arguments)  # type: ignore[arg-type]

    def split(self, *arguments: object) -> list[bytes]:
        Worked.total += len(self)
        return super().split(*arguments)  # type: ignore[arg-type]

    def find(self, sub: bytes, start: int = 0) -> int:  # type: ignore[override]
        found = super().find(sub, start)
        Worked.total += (found if found >= 0 else len(self)) - start
        return found

    def _counted(self, answer: bytes) -> Worked:
        Worked.total += len(self)
        return Worked(answer)


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "endless arrays": lambda size: b"[" * size,
    "endless closers": lambda size: b"]" * size,
    "closers before openers": lambda size: b"][" * (size // 2),
    "openers after balanced pairs": lambda size: b"[]" * (size // 4) + b"[" * (size // 2),
    "an inside-out staircase": lambda size: b"".join(b"[" * n + b"]" * n for n in range(1, int(size**0.5))),
    "combs as deep as allowed": lambda size: (b"[" * 64 + b"]" * 64) * (size // 128),
    "a half-open comb": lambda size: (b"[" * 64 + b"]" * 63) * (size // 127),
    "strings of brackets": lambda size: b'"["]' * (size // 4),
    "quotes": lambda size: b'"' * size,
    "backslashes": lambda size: b"\\" * size,
    "escaped quotes": lambda size: b'[\\"' * (size // 3),
    "empty objects": lambda size: b"{}," * (size // 3),
    "objects in objects": lambda size: b'{"a":' * (size // 5),
    "commas": lambda size: b"," * size,
    "digits": lambda size: b"9" * size,
    "exponents": lambda size: b"1e9" * (size // 3),
    "numbers": lambda size: b"1e999," * (size // 6),
}


def work(frame: bytes) -> int:
    """Bytes worked through by the gate and the number check."""
    Worked.total = Worked.rounds = 0
    for check in (gate, refuse_wide_numbers):
        try:
            check(Worked(frame))
        except Malformed:
            pass
    return Worked.total


@pytest.mark.parametrize("attack", HOSTILE)
def test_the_work_on_a_hostile_frame_is_a_bounded_number_of_passes(attack: str) -> None:
    for size in (10_000, 100_000, MEBIBYTE):
        frame = HOSTILE[attack](size)
        assert work(frame) <= (USUAL_DEPTH + 16) * len(frame)
        assert Worked.rounds <= USUAL_DEPTH + 4


def test_a_long_text_is_not_read_byte_by_byte() -> None:
    frame = b'{"text":"' + b"hello 12345 " * 100_000 + b'"}'
    assert work(frame) <= 8 * len(frame)
    assert Worked.rounds == 0


@pytest.mark.parametrize("attack", HOSTILE)
def test_a_hostile_frame_costs_a_few_times_its_size_in_memory(attack: str) -> None:
    frame = HOSTILE[attack](4 * MEBIBYTE)
    tracemalloc.start()
    try:
        gate(frame)
    except Malformed:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 16 * MEBIBYTE


PIECES = [*(b"%c" % byte for byte in b'[]{",-e\\\n'), b"1" * 19, b"9" * 20, b"1e9", b"5e999", b"\xc3", b"x" * 40]


@given(st.lists(st.sampled_from(PIECES), max_size=300).map(b"".join))
def test_what_is_plain_is_never_refused(chunk: bytes) -> None:
    plain = plain_text(chunk)
    for frame in (chunk, *chunk.split(b"\n")):
        if plainly_flat(frame) and (plain or plain_text(frame)):
            gate(frame)
            refuse_wide_numbers(frame)


@pytest.mark.parametrize("message", [b'{"id":12,"result":{"text":"%b"}}' % (b"x" * 3_000), b"{}", b"[1.5e10,-3]"])
def test_an_ordinary_message_is_plain(message: bytes) -> None:
    assert plain_text(message) and plainly_flat(message)


@given(st.integers(-(2**70), 2**70), st.sampled_from([b"%d", b"[%d]", b'{"a":%d}', b'["x",%d]', b"[1,%d,2]"]))
def test_an_integer_passes_exactly_when_it_fits_64_bits(number: int, shape: bytes) -> None:
    fits = json_gate.MIN_INTEGER <= number <= json_gate.MAX_INTEGER
    try:
        refuse_wide_numbers(shape % number)
    except Malformed:
        assert not fits
    else:
        assert fits


@given(
    st.integers(0, 10**25),
    st.integers(0, 10**25) | st.none(),
    st.integers(-400, 400),
    st.sampled_from(["e", "E", "e+", "E+0"]),
)
def test_a_float_passes_exactly_when_it_is_finite(whole: int, part: int | None, power: int, e: str) -> None:
    fraction = "" if part is None else f".{part}"
    exponent = f"{e}{power}" if power >= 0 else f"e{power}"
    text = f"{whole}{fraction}{exponent}"
    try:
        refuse_wide_numbers(f'{{"key":[{text}]}}'.encode())
    except Malformed:
        assert float(text) == float("inf")
    else:
        assert float(text) < float("inf")


# Vectors of parsing test suites, through every codec.

DECISIONS: dict[str, str] = json.loads(Path(__file__).with_name("open_decisions.json").read_text())


def _private() -> StdlibCodec:
    engine = private_engine()
    assert engine is not None
    return StdlibCodec(engine)


CODECS: dict[str, Callable[[], Any]] = {
    "msgspec": MsgspecCodec,
    "accelerator": _private,
    "json package": lambda: StdlibCodec(public_engine()),
}


def decide(codec: Any, document: bytes) -> str:
    """`accepted` or `refused`; any other error fails the test."""
    try:
        codec.decode(document)
    except Malformed:
        return "refused"
    return "accepted"


def decide_in_message(codec: Any, document: bytes) -> str:
    """The decision on the document as the payload of a message that is read as raw bytes."""
    try:
        message = codec.decoder(("id",), ("params",))(b'{"id":1,"params":' + document + b"}")
    except Malformed:
        return "refused"
    codec.load(message.params)
    return "accepted"


@requirement("host:json-vectors")
@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("how", [decide, decide_in_message])
def test_valid_documents_are_accepted_and_invalid_ones_refused(name: str, how: Callable[[Any, bytes], str]) -> None:
    codec = CODECS[name]()
    assert [case for case, document in VALID.items() if how(codec, document) != "accepted"] == []
    assert [case for case, document in INVALID.items() if how(codec, document) != "refused"] == []


@requirement("host:json-vectors")
@pytest.mark.parametrize("name", CODECS)
def test_open_documents_are_decided_as_written_down(name: str) -> None:
    codec = CODECS[name]()
    assert {case: decide(codec, document) for case, document in OPEN.items()} == DECISIONS


def test_the_vectors_are_as_many_as_in_the_suites_and_of_every_category() -> None:
    assert (len(VALID), len(INVALID), len(OPEN)) >= (90, 180, 35)
    for cases in (VALID, INVALID, OPEN):
        kinds = Counter(name.split("_")[0] for name in cases)
        assert kinds.keys() >= {"number", "object", "string", "structure"}
