"""Every failure has its status, by code and origin."""

from __future__ import annotations

import signal

import pytest

from plugbay.cli.exit_codes import BY_CODE, Exit, for_failure, for_refusal, for_signal
from plugbay.model.errors import CODES, ORIGINS, Code, Failure, Origin
from plugbay.packages.errors import Reason

ELSEWHERE = {
    "launch_failed": 7,
    "handshake_failed": 7,
    "timeout": 8,
    "crashed": 1,
    "malformed_response": 1,
    "tool_not_exposed": 4,
    "protocol_version_mismatch": 7,
    "capability_not_declared": 5,
    "capability_not_allowed": 5,
    "invalid_input": 2,
    "plugin_error": 10,
    "unavailable": 1,
    "cancelled": 1,
    "overloaded": 1,
    "frame_too_large": 1,
    "sandbox_unavailable": 7,
    "quarantined": 1,
    "not_found": 4,
    "internal": 1,
}
"""The documented numbers, written out once more so that a change of either table is seen."""

BY_THE_PLUGIN = ELSEWHERE | {"invalid_input": 10, "plugin_error": 10, "not_found": 10}

TABLE = [
    *((code, Origin.HOST, status) for code, status in ELSEWHERE.items()),
    *((code, Origin.SYSTEM, status) for code, status in ELSEWHERE.items()),
    *((code, Origin.PLUGIN, status) for code, status in BY_THE_PLUGIN.items()),
    *((code, Origin.POLICY, 5) for code in ELSEWHERE),
]


def test_the_table_covers_every_code_from_every_origin() -> None:
    assert {(code, origin) for code, origin, _ in TABLE} == {(code, o) for code in CODES for o in ORIGINS}
    assert set(BY_CODE) == CODES


@pytest.mark.parametrize(("code", "origin", "status"), TABLE)
def test_a_failure_has_its_status(code: str, origin: str, status: int) -> None:
    assert for_failure(Failure(code, "why", origin=origin)) == status


def test_the_documented_numbers_are_the_numbers() -> None:
    assert {exit.name: int(exit) for exit in Exit} == {
        "OK": 0,
        "FAILURE": 1,
        "USAGE": 2,
        "INVALID": 3,
        "NOT_FOUND": 4,
        "DENIED": 5,
        "INTEGRITY": 6,
        "LAUNCH": 7,
        "TIMEOUT": 8,
        "FINDINGS": 9,
        "PLUGIN_ERROR": 10,
    }


def test_an_input_refused_by_the_host_is_a_usage_error_and_one_refused_by_the_plugin_is_its_answer() -> None:
    assert for_failure(Failure(Code.INVALID_INPUT, "no", origin=Origin.HOST)) == 2
    assert for_failure(Failure(Code.INVALID_INPUT, "no", origin=Origin.PLUGIN)) == 10


def test_signals_are_reported_as_shells_do() -> None:
    assert for_signal(signal.SIGINT) == 130
    assert for_signal(signal.SIGTERM) == 143


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (Reason.TAMPERED, 6),
        (Reason.UNSIGNED, 6),
        (Reason.LINK, 6),
        (Reason.DIGEST_MISMATCH, 6),
        (Reason.DOWNGRADE, 5),
        (Reason.CONSENT_NEEDED, 5),
        (Reason.UNAUTHORIZED, 5),
        (Reason.NOT_INSTALLED, 4),
        (Reason.REGISTRY_FAILED, 1),
    ],
)
def test_a_refused_package_has_the_status_of_its_reason(reason: Reason, status: int) -> None:
    assert for_refusal(reason) == status
