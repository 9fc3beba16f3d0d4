"""Every error becomes one JSON envelope, whichever layer raised it.

Unexpected exceptions are logged and answered with the request id only. Validation errors never quote values: a secret
may be among them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from plugbay.server.api.models import ErrorEnvelope
from plugbay.server.domain.errors import API, INVALID, NOT_FOUND, GatewayError, full_disk, invalid, unavailable
from plugbay.server.domain.ids import REQUEST_ID
from plugbay.store.failures import StoreUnavailable

STATUSES = {
    400: "The request is malformed.",
    401: "The caller is not authenticated.",
    403: "The caller lacks a permission.",
    404: "Not found, or not visible to the caller.",
    405: "Method not allowed.",
    408: "The body arrived too slowly.",
    409: "Conflict with the current state.",
    413: "Too large.",
    421: "Unknown host name.",
    422: "Well-formed but invalid.",
    429: "Rate limit exceeded.",
    500: "Internal error.",
    503: "Temporarily unavailable.",
}

SCHEMAS = "#/components/schemas/"
_ENVELOPE = {"application/json": {"schema": {"$ref": f"{SCHEMAS}{ErrorEnvelope.__name__}"}}}

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"content": _ENVELOPE, "description": text} for status, text in STATUSES.items()
}
"""Error responses that every route may return. By reference, not by model: FastAPI would build a validator for each of
them in each route, which takes half a second at every start."""


def error_schemas() -> dict[str, Any]:
    """The schemas that `ERRORS` refer to, for the components of the OpenAPI document."""
    schema = ErrorEnvelope.model_json_schema(mode="serialization", ref_template=SCHEMAS + "{model}")
    return {**schema.pop("$defs", {}), ErrorEnvelope.__name__: schema}


NO_MEMORY_SECONDS = 5.0
"""The same for a request for which there was no memory."""

MAX_PROBLEMS = 20
"""Validation problems reported at once."""


def install_error_handlers(app: FastAPI) -> None:
    """Answer every error with the envelope."""
    app.add_exception_handler(GatewayError, _handle)
    app.add_exception_handler(StoreUnavailable, _handle)
    app.add_exception_handler(RequestValidationError, _handle)
    app.add_exception_handler(HTTPException, _handle)


def as_gateway_error(error: Exception) -> GatewayError:
    """The error to report to the client."""
    if isinstance(error, GatewayError):
        return error
    if isinstance(error, StoreUnavailable):
        return unavailable("store.unavailable", str(error), retry_after=error.retry_after)
    if isinstance(error, OSError) and (full := full_disk(error)) is not None:
        return full
    if isinstance(error, MemoryError):
        text = "the server has no memory left for this request; send it again later, or send less"
        return unavailable("gateway.out_of_memory", text, retry_after=NO_MEMORY_SECONDS)
    if isinstance(error, RequestValidationError):
        return _from_validation(error)
    if isinstance(error, HTTPException):
        return _from_http(error)
    return GatewayError(API, "api.internal", 500, "a bug in plugbay; the log has the details under the request id")


def error_response(error: GatewayError, more: Mapping[str, str] | None = None) -> Response:
    """The error as a response, with `more` headers."""
    headers = {} if error.retry_after is None else {"retry-after": str(max(1, math.ceil(error.retry_after)))}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    headers.update(more or {})
    return JSONResponse(error.to_json(REQUEST_ID.get()), error.status, headers)


async def _handle(request: Request, error: Exception) -> Response:
    return error_response(as_gateway_error(error), error.headers if isinstance(error, HTTPException) else None)


def _from_validation(error: RequestValidationError) -> GatewayError:
    problems = validation_problems(error.errors())
    first = problems[0] if problems else {"path": "", "problem": "invalid"}
    text = f"{first['path'] or 'the body'}: {first['problem']}"
    return invalid("request.invalid", text, first["path"] or None, problems=problems)


def validation_problems(errors: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The problems that pydantic found, without values: a secret may be among them."""
    return [
        {"path": ".".join(str(step) for step in each["loc"] if step != "body"), "problem": _problem(each)}
        for each in errors[:MAX_PROBLEMS]
    ]


def _problem(error: Mapping[str, Any]) -> str:
    """pydantic's message, or ours inside it. JSON without its content type, as curl sends it, gets a hint."""
    if tuple(error["loc"]) == ("body",) and error.get("type") == "model_attributes_type":
        return "it must be a JSON object, sent with Content-Type: application/json"
    return str(error["msg"]).removeprefix("Value error, ")


def _from_http(error: HTTPException) -> GatewayError:
    if error.status_code == 404:
        return GatewayError(NOT_FOUND, "route.not_found", 404, "there is no route with this path")
    if error.status_code == 405:
        return GatewayError(INVALID, "route.method_not_allowed", 405, "this path does not support this method")
    return GatewayError(INVALID, "request.invalid", error.status_code, str(error.detail))
