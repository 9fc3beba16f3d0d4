"""Every error is answered with the envelope and reveals no values."""

from __future__ import annotations

import msgspec
import pytest
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from plugbay.server.api.errors import MAX_PROBLEMS, as_gateway_error, error_response
from plugbay.server.domain.errors import conflict, too_many, unauthenticated
from plugbay.store.failures import StoreUnavailable
from tests.support.requirements import requirement


@requirement("vai:control-error-envelope")
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (conflict("org.exists", "no"), 409, "org.exists"),
        (StoreUnavailable("SQLITE_BUSY"), 503, "store.unavailable"),
        (HTTPException(404), 404, "route.not_found"),
        (HTTPException(405), 405, "route.method_not_allowed"),
        (HTTPException(400, "odd"), 400, "request.invalid"),
        (RequestValidationError([]), 400, "request.invalid"),
        (MemoryError(), 503, "gateway.out_of_memory"),
        (LookupError("hunter2"), 500, "api.internal"),
    ],
)
def test_each_error_has_its_status_and_code(error: Exception, status: int, code: str) -> None:
    told = as_gateway_error(error)
    assert (told.status, told.code) == (status, code)
    assert "hunter2" not in told.message


def test_all_problems_of_a_body_are_reported_without_its_values() -> None:
    problems = [{"loc": ("body", "config", at), "msg": "bad", "input": "hunter2"} for at in range(MAX_PROBLEMS + 5)]
    told = as_gateway_error(RequestValidationError(problems))
    assert len(told.details["problems"]) == MAX_PROBLEMS and told.param == "config.0"
    assert "hunter2" not in repr(told.to_json())


@pytest.mark.parametrize(
    ("where", "words"),
    [(("body",), "sent with Content-Type: application/json"), (("body", "config"), "config: Input should be")],
)
def test_json_without_its_content_type_gets_a_hint(where: tuple[str, ...], words: str) -> None:
    unread = {"loc": where, "msg": "Input should be a valid dictionary", "type": "model_attributes_type"}
    assert words in as_gateway_error(RequestValidationError([unread])).message


def test_messages_of_own_validators_are_not_prefixed() -> None:
    error = {"loc": ("body",), "msg": "Value error, name a binding_id, or an export", "type": "value_error"}
    assert as_gateway_error(RequestValidationError([error])).message == "the body: name a binding_id, or an export"


def test_an_error_has_the_headers_for_retry_and_authentication() -> None:
    later = error_response(too_many("slowly", retry_after=0.2))
    assert later.headers["retry-after"] == "1"
    assert msgspec.json.decode(bytes(later.body))["error"]["retry_after"] == 0.2
    assert error_response(unauthenticated("auth.missing", "who?")).headers["www-authenticate"] == "Bearer"
    assert error_response(conflict("a.b", "c"), {"allow": "GET"}).headers["allow"] == "GET"
