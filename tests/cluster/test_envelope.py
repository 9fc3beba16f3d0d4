"""Messages survive the way; anything else than a message of this version is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.cluster import envelope
from plugbay.cluster.envelope import Access, Beat, Call, Control, Frame, Package, Roll
from plugbay.model.errors import CODES, ORIGINS, Failure
from plugbay.model.operations import Compact, InvokeTool, PressKey, RunHarness, RunHook
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed
from tests.support.requirements import requirement

CODEC = MsgspecCodec()
ID = "0123456789abcdef"


def beat(**fields: Any) -> Beat:
    usual = {"node": "n1", "boot": ID, "link": 1, "state": "up", "release": "1.0.0", "labels": {"zone": "a"}}
    return Beat(**{**usual, "places": 8, "busy": 0, "sandbox": True, "key": "", **fields})


def call(**fields: Any) -> Call:
    usual: dict[str, Any] = {"id": ID, "gateway": ID, "boot": ID, "export": "t", "kind": "tool", "org": "org_1"}
    package = Package("acme/p", "1.0.0", "0" * 64, "oci://registry.example/p@sha256:" + "0" * 64)
    usual |= {"package": package, "access": Access(("api.example",)), "execution_class": "worker", "key": "k"}
    return Call(**{**usual, "budget_ms": 1000, "stream": False, "confined": True, **fields})


@pytest.mark.parametrize(
    "head",
    [
        beat(),
        call(),
        Frame(call=ID, node="n1", seq=3, kind="progress"),
        Control(kind="cancel", gateway=ID, call=ID, reason="user_cancelled"),
        Roll(gateway=ID, ask=True),
    ],
    ids=lambda head: type(head).__name__,
)
@pytest.mark.parametrize("body", [b"", b'{"a": 1}', b"\n\n\x00"])
def test_a_message_is_unpacked_as_it_was_packed(head: Any, body: bytes) -> None:
    assert envelope.unpack(type(head), envelope.pack(head, body)) == (head, body)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"{}\n",
        b"null\n",
        b"\xff\n",
        b"[" * 5000 + b"\n",
        envelope.pack(beat()).replace(b'"v":1', b'"v":2'),
        envelope.pack(beat()).replace(b'"link":1', b'"link":"1"'),
        envelope.pack(beat()).replace(b'"link":1', b'"link":-1'),
        envelope.pack(beat(node="a.b")),
        envelope.pack(beat(node="*")),
        envelope.pack(beat(places=0)),
        envelope.pack(beat(release="x" * 201)),
        b'"' + b"x" * envelope.MAX_HEAD + b'"\n',
    ],
)
def test_anything_else_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        envelope.unpack(Beat, data)


def test_announcements_of_a_later_release_are_read_and_its_other_messages_are_not() -> None:
    heard, roll = beat(takes=(1, 2)), Roll(gateway=ID, takes=(1, 2))
    added = (b'"v":1', b'"v":1,"more":{"x":[1]}')
    assert envelope.unpack(Beat, envelope.pack(heard).replace(*added)) == (heard, b"")
    assert envelope.unpack(Roll, envelope.pack(roll).replace(*added)) == (roll, b"")
    cancel = Control(kind="cancel", gateway=ID, call=ID)
    with pytest.raises(Malformed, match="more"):
        envelope.unpack(Control, envelope.pack(cancel).replace(*added))


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_malformed(data: bytes) -> None:
    for kind in (Beat, Call, Frame, Control, Roll):
        try:
            envelope.unpack(kind, data)  # type: ignore[type-var]
        except Malformed:
            continue


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.text(max_size=8), JSON, max_size=4)


@given(OBJECTS, OBJECTS)
def test_an_operation_is_the_same_on_the_other_side(payload: Any, context: Any) -> None:
    raw = msgspec.Raw(CODEC.encode(payload))
    for op in (InvokeTool("t", raw, context), RunHook("h", raw, context)):
        found = envelope.decode_operation(envelope.encode_operation(op, CODEC), CODEC)
        assert type(found) is type(op)
        for slot in type(op).__slots__:
            value = getattr(found, slot)
            expected = getattr(op, slot)
            assert (CODEC.load(value) if isinstance(value, msgspec.Raw) else value) == (
                CODEC.load(expected) if isinstance(expected, msgspec.Raw) else expected
            )
    for other in (Compact("c", payload, context), RunHarness("h", payload, context)):
        assert envelope.decode_operation(envelope.encode_operation(other, CODEC), CODEC) == other


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"kind": "PressKey", "screen": "s"}',
        b'{"kind": "InvokeTool", "tool": "t"}',
        b'{"kind": "InvokeTool", "tool": "t", "input": {}, "context": {}, "more": 1}',
        b'{"kind": "InvokeTool", "tool": "t", "input": NaN, "context": {}}',
        b'{"kind": "InvokeTool", "tool": "t", "input": "\\q", "context": {}}',
        b'{"kind": "InvokeTool", "tool": "t", "input": {"a" 1}, "context": {}}',
        b'{"kind": "InvokeTool", "tool": "t", "input": 1e999, "context": {}}',
        b'{"kind": "InvokeTool", "tool": "t", "input": "\xff", "context": {}}',
        b'{"kind": "InvokeTool", "tool": "t", "input": %b, "context": {}}' % (b"[" * 99 + b"]" * 99),
        b'{"kind": {}, "tool": "t", "input": {}, "context": {}}',
    ],
)
def test_a_body_that_is_no_operation_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        envelope.decode_operation(body, CODEC)


def test_screens_stay_with_their_terminal() -> None:
    with pytest.raises(Malformed, match="PressKey is not carried out by nodes"):
        envelope.encode_operation(PressKey("s", {}), CODEC)


@requirement("host:nodes-failures")
@given(st.sampled_from(sorted(CODES)), st.sampled_from(sorted(ORIGINS)), st.text(), OBJECTS, st.booleans())
def test_a_failure_is_the_same_on_the_other_side(
    code: str, origin: str, text: str, detail: dict[str, Any], retryable: bool
) -> None:
    failure = Failure(code, text, origin=origin, detail=detail, retryable=retryable, retry_after_ms=5)
    assert envelope.failure_from_json(envelope.failure_to_json(failure)) == failure


@pytest.mark.parametrize(
    "changed",
    [{"code": "odd"}, {"origin": "odd"}, {"message": 1}, {"detail": []}, {"retryable": 1}, {"retry_after_ms": "1"}],
)
def test_a_failure_of_another_shape_is_malformed(changed: dict[str, Any]) -> None:
    data = envelope.failure_to_json(Failure("crashed", "gone"))
    with pytest.raises(Malformed):
        envelope.failure_from_json({**data, **changed})
    with pytest.raises(Malformed):
        envelope.failure_from_json({})
