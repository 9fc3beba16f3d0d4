"""Each operation has the contract's seconds, and each variable overrides its own."""

from __future__ import annotations

import pytest

from plugbay.contracts.nexo.patience import INIT_TIMEOUT, PATIENCE, TIMEOUTS, patience
from plugbay.model import operations
from plugbay.model.spec import Timeouts
from tests.support.requirements import requirement

DEFAULTS = {
    "InvokeTool": 60,
    "StartChannel": 30,
    "StopChannel": 30,
    "SendOutbound": 60,
    "Chat": 60,
    "Chat.stream": 300,
    "RunHook": 5,
    "UpsertVectors": 30,
    "DeleteVectors": 30,
    "SearchVectors": 10,
}


@requirement("nexo:manifest-timeouts")
def test_the_contracts_defaults_hold_when_nothing_is_set() -> None:
    assert patience({}) == (Timeouts(handshake=5, call=60, farewell=5, teardown=1, kill=2), DEFAULTS, [])


def test_every_name_is_an_operation() -> None:
    assert [name for name in DEFAULTS if not hasattr(operations, name.removesuffix(".stream"))] == []


@requirement("nexo:manifest-timeouts")
@pytest.mark.parametrize("variable", PATIENCE)
def test_a_variable_overrides_its_own_operations_and_no_others(variable: str) -> None:
    timeouts, seconds, problems = patience({variable: "1500"})
    assert seconds == DEFAULTS | dict.fromkeys(PATIENCE[variable], 1.5)
    assert timeouts == TIMEOUTS
    assert problems == []


@requirement("nexo:manifest-init-timeout")
def test_the_greeting_has_a_variable_of_its_own() -> None:
    timeouts, seconds, problems = patience({INIT_TIMEOUT: "250"})
    assert timeouts == Timeouts(handshake=0.25, call=60, farewell=5, teardown=1, kill=2)
    assert (seconds, problems) == (DEFAULTS, [])


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("+7", 0.007), ("007", 0.007), (str(2**64 - 1), 2**64 / 1000)])
def test_every_unsigned_number_of_64_bits_counts(text: str, seconds: float) -> None:
    timeouts, _, problems = patience({INIT_TIMEOUT: text})
    assert timeouts.handshake == seconds
    assert problems == []


@requirement("nexo:manifest-timeouts")
@pytest.mark.parametrize("text", ["", " 5", "5s", "-1", "1.5", "1_000", "٣", str(2**64), "9" * 5000])
def test_anything_else_falls_back_with_a_warning(text: str) -> None:
    for variable in (INIT_TIMEOUT, *PATIENCE):
        timeouts, seconds, problems = patience({variable: text})
        assert (timeouts, seconds) == (TIMEOUTS, DEFAULTS)
        assert [(problem.severity, problem.code, problem.path) for problem in problems] == [
            ("warning", "invalid_timeout", variable)
        ]
