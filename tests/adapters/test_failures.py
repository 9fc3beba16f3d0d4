"""The failure of a source becomes the failure of the adapter's call, with the target's own number."""

from __future__ import annotations

import pickle

import pytest

from plugbay.adapters.failures import CODE_FOR, SourceFailed, translate
from plugbay.contracts.ainb import errors as ainb
from plugbay.contracts.kaged import errors as kaged
from plugbay.contracts.nexo import errors as nexo
from plugbay.contracts.rune import errors as rune
from plugbay.contracts.vai import errors as vai
from plugbay.model.errors import CODES, Code, Failure, Origin
from plugbay.model.operations import InvokeTool, SearchVectors, SendOutbound

VERDICTS = {
    *(Code.LAUNCH_FAILED, Code.HANDSHAKE_FAILED, Code.TIMEOUT, Code.CRASHED, Code.MALFORMED_RESPONSE),
    *(Code.TOOL_NOT_EXPOSED, Code.PROTOCOL_VERSION_MISMATCH),
    *(Code.CAPABILITY_NOT_DECLARED, Code.CAPABILITY_NOT_ALLOWED),
}
"""The codes that a host of rune says itself about a plugin."""

ANSWERS = {
    Code.LAUNCH_FAILED: ("unavailable", -33404, -32000, -32603),
    Code.HANDSHAKE_FAILED: ("unavailable", -33404, -32000, -32603),
    Code.PROTOCOL_VERSION_MISMATCH: ("unavailable", -33404, -32000, -32603),
    Code.SANDBOX_UNAVAILABLE: ("unavailable", -33404, -32000, -32603),
    Code.QUARANTINED: ("unavailable", -33404, -32000, -32603),
    Code.UNAVAILABLE: ("unavailable", -33404, -32000, -32603),
    Code.TIMEOUT: ("plugin_error", -33403, -32000, -32603),
    Code.CRASHED: ("plugin_error", -33403, -32000, -32603),
    Code.MALFORMED_RESPONSE: ("plugin_error", -33403, -32000, -32603),
    Code.FRAME_TOO_LARGE: ("plugin_error", -33403, -32000, -32603),
    Code.INTERNAL: ("plugin_error", -33403, -32000, -32603),
    Code.PLUGIN_ERROR: ("plugin_error", -33403, -32000, -32603),
    Code.INVALID_INPUT: ("invalid_input", -33402, -32602, -32602),
    Code.NOT_FOUND: ("not_found", -33403, -32000, -32602),
    Code.CANCELLED: ("cancelled", -33403, -32000, -32603),
    Code.OVERLOADED: ("overloaded", -33404, -32000, -32603),
    Code.TOOL_NOT_EXPOSED: ("tool_not_exposed", -33401, -32601, -32601),
    Code.CAPABILITY_NOT_DECLARED: ("capability_not_allowed", -33405, -32000, -32001),
    Code.CAPABILITY_NOT_ALLOWED: ("capability_not_allowed", -33405, -32000, -32001),
}
"""By code of the source: the code in words, and the numbers of nexo, kaged and ainb."""

CONTRACTS = ("rune", "nexo", "kaged", "ainb", "vai", "mcp")


@pytest.mark.parametrize("code", sorted(CODES))
def test_each_target_gets_its_own_answer_for_each_code(code: str) -> None:
    word, *numbers = ANSWERS[code]
    for source in CONTRACTS:
        failure = Failure(code, "why", detail={"stderr_tail": ["secret"]})
        said = {target: translate(failure, source, target) for target in CONTRACTS}
        assert [
            nexo.to_wire(InvokeTool, said["nexo"])[0],
            kaged.to_wire(InvokeTool, said["kaged"])[0],
            ainb.to_host(said["ainb"])[0],
        ] == numbers
        assert (kaged.to_wire(InvokeTool, said["kaged"])[2] or {})["code"] == word
        assert vai.error_of(said["vai"])["code"] == word
        code_of_rune, _ = rune.to_wire(said["rune"])
        assert code_of_rune not in VERDICTS
        assert code_of_rune == word or word in VERDICTS
        assert not any("stderr_tail" in each.detail for each in said.values())


def test_every_code_has_one_for_the_other_host() -> None:
    assert CODE_FOR.keys() == CODES
    assert set(CODE_FOR.values()) <= CODES


@pytest.mark.parametrize(
    ("code", "number"),
    [
        (Code.TOOL_NOT_EXPOSED, -33401),
        (Code.INVALID_INPUT, -33402),
        (Code.CRASHED, -33403),
        (Code.TIMEOUT, -33403),
        (Code.LAUNCH_FAILED, -33404),
        (Code.QUARANTINED, -33404),
        (Code.OVERLOADED, -33404),
        (Code.CAPABILITY_NOT_DECLARED, -33405),
    ],
)
def test_a_nexo_host_gets_its_own_numbers(code: str, number: int) -> None:
    failure = Failure(code, "why", detail={"plugin_code": -32000, "kind": "rate_limited"})
    assert nexo.to_wire(InvokeTool, translate(failure, "kaged", "nexo"))[0] == number


def test_numbers_and_names_of_another_contract_are_left_out() -> None:
    failure = Failure(
        Code.PLUGIN_ERROR,
        "too fast",
        detail={"plugin_code": -33103, "kind": "rate_limited", "stderr_tail": ["secret"], "hint": "wait"},
        retryable=True,
        retry_after_ms=500,
    )
    translated = translate(failure, "nexo", "kaged")
    assert translated.detail == {"plugin_code": "plugin_error", "hint": "wait"}
    assert (translated.retryable, translated.retry_after_ms, translated.origin) == (True, 500, Origin.PLUGIN)
    assert kaged.to_wire(InvokeTool, translated)[0] == kaged.DEFINED


def test_a_failure_within_one_contract_keeps_its_number() -> None:
    failure = Failure(Code.PLUGIN_ERROR, "own", detail={"plugin_code": -33499, "kind": "odd"})
    assert translate(failure, "nexo", "nexo").detail == {"plugin_code": -33499, "kind": "odd"}


@pytest.mark.parametrize(
    ("op", "number", "data"),
    [
        (InvokeTool, -33402, {"details": {"field": "q"}}),
        (InvokeTool, -33404, {"retry_after_ms": 5000}),
        (SendOutbound, -33003, {"recipient": "ada", "reason": "gone"}),
        (SendOutbound, -33005, {"feature": "reactions"}),
        (SearchVectors, -33301, {"collection": "notes"}),
        (SearchVectors, -33302, {"expected": 3, "got": 4}),
    ],
)
def test_a_failure_within_nexo_keeps_its_data(op: type, number: int, data: dict[str, object]) -> None:
    failure = nexo.from_wire(op, "some.method", {"code": number, "message": "no", "data": data})
    answer = nexo.to_wire(op, translate(failure.with_detail(stderr_tail=["secret"]), "nexo", "nexo"))
    assert (answer[0], answer[2]) == (number, data)


def test_a_code_of_a_plugin_s_own_stays_within_its_contract() -> None:
    failure = rune.from_wire("quota", "too much")
    assert rune.to_wire(translate(failure, "rune", "rune")) == ("quota", "too much")
    assert rune.to_wire(translate(failure, "vai", "rune")) == ("plugin_error", "too much")
    invalid = vai.invalid("it is no object")
    assert vai.error_of(translate(invalid, "vai", "vai"))["code"] == "plugin_error"


def test_the_failure_is_the_answer_of_a_handler() -> None:
    failure = Failure(Code.UNAVAILABLE, "away", origin=Origin.PLUGIN)
    raised = pickle.loads(pickle.dumps(SourceFailed(failure)))
    assert raised.failure() == failure
    assert str(raised) == "away"
