"""Framings cut messages out of bytes; frame rules tell requests, answers and notices apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.ainb.messages import MAX_BODY
from plugbay.contracts.base import Role
from plugbay.contracts.contract import HostSide
from plugbay.contracts.frames import (
    ANSWER,
    MAX_NAME,
    NOTICE,
    REQUEST,
    Lengths,
    Lines,
    OpenLengths,
    Piece,
    Turn,
    error_message,
    rpc_rules,
)
from plugbay.contracts.registry import CONTRACTS
from plugbay.contracts.rune.messages import MAX_PLUGIN_LINE
from plugbay.contracts.vai.messages import MAX_BODY as MAX_OPEN_BODY
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
    assert Lines(10).wrap(b"a") == b"a\n"
    assert Lines(10).wrap(b"a", "\r\n") == b"a\r\n"


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
    assert Lengths(MAX_BODY).wrap(b"ab") == b"Content-Length: 2\r\n\r\nab"
    assert Lengths(MAX_BODY).wrap(b"ab", "CONTENT-LENGTH:+0{}\r\n\r\n") == b"CONTENT-LENGTH:+02\r\n\r\nab"


def test_a_contract_may_have_another_limit_than_its_headers() -> None:
    (piece,) = Lengths(10).feed(b"Content-Length: 11\r\n\r\n")
    assert piece.problem
    assert Lengths(10).feed(Lengths(10).wrap(b"x" * 10)) == [Piece(b"x" * 10)]


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
    framing = CONTRACTS[contract].framing_of(speaker)
    wire = b"".join(framing.wrap(body) for body in said)
    assert [piece for chunk in cut(wire, at) for piece in framing.feed(chunk)] == [Piece(body) for body in said]
    assert framing.eof() is None


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_framing_of_a_contract_is_that_of_its_machine(contract: str) -> None:
    spec = PluginSpec("p", "1", contract, Path("/p"), ("run",))
    machine = CONTRACTS[contract].host_machine(spec, HostSide(), stdlib_codec())
    machine.greet()
    (piece,) = CONTRACTS[contract].framing_of(Role.HOST).feed(machine.outgoing())
    assert piece.problem == "" and isinstance(json.loads(piece.body), dict)


def test_the_two_ends_of_a_conversation_have_limits_of_their_own() -> None:
    line = b"x" * (MAX_PLUGIN_LINE + 1) + b"\n"
    assert CONTRACTS["rune"].framing_of(Role.PLUGIN).feed(line)[0].problem
    assert not CONTRACTS["rune"].framing_of(Role.HOST).feed(line)[0].problem


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_first_frame_of_every_host_is_a_request(contract: str) -> None:
    spec = PluginSpec("p", "1", contract, Path("/p"), ("run",))
    machine = CONTRACTS[contract].host_machine(spec, HostSide(), stdlib_codec())
    machine.greet()
    (piece,) = CONTRACTS[contract].framing_of(Role.HOST).feed(machine.outgoing())
    assert CONTRACTS[contract].frame_rules.turn(Role.HOST, json.loads(piece.body)).kind == REQUEST


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_refusal_is_an_answer_that_failed(contract: str) -> None:
    rules = CONTRACTS[contract].frame_rules
    refusal = rules.refusal(Turn(REQUEST, "tool.invoke", "a"), "not recorded")
    assert rules.turn(Role.PLUGIN, refusal) == Turn(ANSWER, "", "a", "not recorded")


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_frame_that_is_no_object_is_a_notice_without_a_name(contract: str) -> None:
    assert CONTRACTS[contract].frame_rules.turn(Role.PLUGIN, ["no", "object"]) == Turn(NOTICE, "")


def test_a_name_that_a_plugin_chose_is_cut() -> None:
    assert len(rpc_rules(-1).turn(Role.PLUGIN, {"method": "x" * 1000}).name) == MAX_NAME


def test_an_error_has_a_message_or_a_code() -> None:
    assert error_message(None) == ""
    assert error_message({"code": -1, "message": " "}) == "-1"
    assert error_message({"code": -1, "message": "no"}) == "no"
    assert error_message("odd") == "an error"


def test_json_rpc_numbers_requests_and_answers() -> None:
    rules = rpc_rules(-32000, "/params/version")
    assert rules.volatile == ("/id", "/params/version")
    assert rules.with_id({"id": 1, "result": 5}, 7) == {"id": 7, "result": 5}
    assert rules.with_id({"method": "changed"}, 7) == {"method": "changed"}
    assert rules.refusal(Turn(REQUEST, "m", 3), "no")["error"] == {"code": -32000, "message": "no"}
