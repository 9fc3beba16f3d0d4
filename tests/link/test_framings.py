"""Messages are cut out of bytes by lines or by lengths, and what breaks the rules is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.ainb.messages import MAX_BODY
from plugbay.contracts.base import Role
from plugbay.contracts.registry import CONTRACTS, HostSide
from plugbay.contracts.rune.messages import MAX_PLUGIN_LINE
from plugbay.contracts.vai.messages import MAX_BODY as MAX_OPEN_BODY
from plugbay.link.framings import Lengths, Lines, OpenLengths, Piece, framing_of
from plugbay.model.spec import PluginSpec
from plugbay.wire.strict_json import stdlib_codec
from tests.wire.chunks import cut, places


def test_a_line_is_a_message_and_the_rest_at_the_end_is_one_too() -> None:
    lines = Lines(10)
    assert lines.feed(b"a\nb") == [Piece(b"a")]
    assert lines.eof() == Piece(b"b")
    assert Lines(10).eof() is None


def test_a_line_that_is_too_long_is_a_problem() -> None:
    (piece,) = Lines(10).feed(b"x" * 11 + b"\n")
    assert piece.problem == "a line of more than 10 bytes"


def test_a_line_is_marked_by_its_end() -> None:
    assert Lines(10).marked(b"a") == b"a\n"
    assert Lines(10).marked(b"a", "\r\n") == b"a\r\n"


def test_a_frame_is_as_long_as_its_header_says_however_it_is_cut() -> None:
    frames = Lengths(MAX_BODY)
    assert frames.feed(b"Content-Length: 2\r\n\r\nabContent-Le") == [Piece(b"ab")]
    assert frames.feed(b"ngth: 0\r\n\r\n") == [Piece(b"")]
    assert frames.eof() is None


def test_a_header_that_breaks_the_rules_is_the_last_that_is_read() -> None:
    frames = Lengths(MAX_BODY)
    (piece,) = frames.feed(b"hello\nContent-Length: 2\r\n\r\nab")
    assert piece == Piece(b"hello\n", "a header line ends in a bare LF")
    assert frames.feed(b"Content-Length: 2\r\n\r\nab") == []


def test_output_that_ends_inside_a_frame_is_a_problem() -> None:
    frames = Lengths(MAX_BODY)
    frames.feed(b"Content-Length: 5\r\n\r\nab")
    assert frames.eof() == Piece(b"ab", "the stream ended inside a body, 3 bytes short")


def test_a_frame_is_marked_by_its_length_in_any_spelling() -> None:
    assert Lengths(MAX_BODY).marked(b"ab") == b"Content-Length: 2\r\n\r\nab"
    assert Lengths(MAX_BODY).marked(b"ab", "CONTENT-LENGTH:+0{}\r\n\r\n") == b"CONTENT-LENGTH:+02\r\n\r\nab"


def test_open_headers_may_stand_beside_the_length() -> None:
    data = b"X-Trace: 1\r\nContent-Length: 2\r\n\r\nab"
    assert OpenLengths(MAX_OPEN_BODY).feed(data) == [Piece(b"ab")]
    (piece,) = Lengths(MAX_BODY).feed(data)
    assert piece.problem
    (large,) = OpenLengths(MAX_OPEN_BODY).feed(b"Content-Length: %d\r\n\r\n" % (MAX_OPEN_BODY + 1))
    assert large.problem


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("speaker", [Role.HOST, Role.PLUGIN])
@given(bodies=st.lists(st.dictionaries(st.text(max_size=5), st.integers(), max_size=3), max_size=6), at=places)
def test_what_is_cut_is_what_was_marked_however_the_bytes_come(
    contract: str, speaker: str, bodies: list[dict[str, int]], at: list[int]
) -> None:
    said = [json.dumps(body).encode() for body in bodies]
    framing = framing_of(contract, speaker)
    wire = b"".join(framing.marked(body) for body in said)
    assert [piece for chunk in cut(wire, at) for piece in framing.feed(chunk)] == [Piece(body) for body in said]
    assert framing.eof() is None


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_framing_of_a_contract_is_that_of_its_machine(contract: str) -> None:
    spec = PluginSpec("p", "1", contract, Path("/p"), ("run",))
    machine = CONTRACTS[contract].host_machine(spec, HostSide(), stdlib_codec())
    machine.greet()
    (piece,) = framing_of(contract, Role.HOST).feed(machine.outgoing())
    assert piece.problem == "" and isinstance(json.loads(piece.body), dict)


def test_the_two_ends_of_a_conversation_have_limits_of_their_own() -> None:
    line = b"x" * (MAX_PLUGIN_LINE + 1) + b"\n"
    assert framing_of("rune", Role.PLUGIN).feed(line)[0].problem
    assert not framing_of("rune", Role.HOST).feed(line)[0].problem
