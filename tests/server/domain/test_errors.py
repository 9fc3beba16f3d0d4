"""Every kind of error has its type, its status and its envelope."""

from __future__ import annotations

import errno

import pytest

from plugbay.server.domain import errors
from plugbay.server.domain.errors import GatewayError
from tests.support.requirements import requirement


@requirement("vai:control-error-types")
@pytest.mark.parametrize(
    ("error", "type", "status"),
    [
        (errors.invalid("request.invalid", "no"), "invalid_request_error", 400),
        (errors.unprocessable("binding.invalid_config", "no"), "invalid_request_error", 422),
        (errors.too_large("request.too_large", "no"), "invalid_request_error", 413),
        (errors.unauthenticated("auth.missing", "no"), "authentication_error", 401),
        (errors.denied("auth.scope_denied", "no"), "permission_error", 403),
        (errors.not_found("binding", "bind_1"), "not_found_error", 404),
        (errors.conflict("chain.attach_conflict", "no"), "conflict_error", 409),
        (errors.too_many("no", retry_after=1.0), "rate_limit_error", 429),
        (errors.unavailable("store.unavailable", "no"), "overloaded_error", 503),
    ],
)
def test_each_type_has_its_status(error: GatewayError, type: str, status: int) -> None:
    assert (error.type, error.status) == (type, status)
    assert error.code.count(".") == 1
    assert error.retryable is (status in (429, 503))


@requirement("vai:control-error-envelope")
def test_the_envelope_has_every_field() -> None:
    error = errors.denied("auth.scope_denied", "this token does not have runs:read", required=["runs:read"])
    assert error.to_json("req_1") == {
        "error": {
            "type": "permission_error",
            "code": "auth.scope_denied",
            "message": "this token does not have runs:read",
            "param": None,
            "request_id": "req_1",
            "retryable": False,
            "retry_after": None,
            "details": {"required": ["runs:read"]},
        }
    }


def test_a_full_disk_has_its_own_code() -> None:
    for number in (errno.ENOSPC, errno.EDQUOT):
        found = errors.full_disk(OSError(number, "no"))
        assert found is not None and (found.code, found.status, found.retryable) == ("disk.full", 503, True)
    assert errors.full_disk(OSError(errno.EIO, "no")) is None
