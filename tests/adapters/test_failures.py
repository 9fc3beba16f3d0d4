"""The failure of a source becomes the failure of the adapter's call, with the target's own number."""

from __future__ import annotations

import pickle

import pytest

from plugbay.adapters.failures import CODE_FOR, SourceFailed, translate
from plugbay.contracts.kaged import errors as kaged
from plugbay.contracts.nexo import errors as nexo
from plugbay.model.errors import CODES, Code, Failure, Origin
from plugbay.model.operations import InvokeTool


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


def test_the_failure_is_the_answer_of_a_handler() -> None:
    failure = Failure(Code.UNAVAILABLE, "away", origin=Origin.PLUGIN)
    raised = pickle.loads(pickle.dumps(SourceFailed(failure)))
    assert raised.failure() == failure
    assert str(raised) == "away"
