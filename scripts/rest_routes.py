"""The table of REST routes from which the command line of the control plane is made, read from the OpenAPI document.

One entry per `/v1` route: its first sentences, its parameters in the order of the command line, and its kind of answer.
Objects with known fields are spread out: `scope.org_id` is a parameter of its own.
"""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI

from plugbay.server.app import ROUTERS

PREFIX = "/v1/"
PAGING = {"limit", "cursor"}
JSON, EVENTS = "application/json", "text/event-stream"


def rest_routes() -> bytes:
    """The table as JSON, one route per line."""
    app = FastAPI()
    app.router.routes.extend(route for router in ROUTERS for route in router.routes)
    document = app.openapi()
    schemas = document["components"]["schemas"]
    routes = {
        f"{method.upper()} {path}": _route(operation, schemas)
        for path, operations in document["paths"].items()
        if path.startswith(PREFIX)
        for method, operation in operations.items()
    }
    lines = [f"  {_json(name)}: {_json(route)}" for name, route in routes.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _route(operation: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    given = [each for each in operation.get("parameters", ()) if each["in"] in ("path", "query")]
    names = {each["name"] for each in given}
    parameters = [
        {"in": each["in"], **_parameter((each["name"],), each["schema"], each["required"], each.get("description", ""))}
        for each in given
        if each["in"] == "path" or not (names >= PAGING and each["name"] in PAGING)
    ]
    body = operation.get("requestBody", {}).get("content", {})
    for parameter in _fields(body.get(JSON, {}).get("schema", {}), schemas):
        parameters.append({"in": "body", **parameter})
    answers = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
    kinds = [kind for answer in answers for kind in answer.get("content", {})]
    return {
        "help": " ".join(operation.get("description", "").split()) or f"{operation['summary']}.".capitalize(),
        "parameters": parameters,
        "paged": names >= PAGING,
        "answer": _answer(kinds),
    }


def _answer(kinds: list[str]) -> str:
    """`followed`: JSON, or events with `follow=true`."""
    if EVENTS in kinds:
        return "followed" if JSON in kinds else "events"
    return "json" if JSON in kinds else "bytes" if kinds else "none"


def _fields(schema: dict[str, Any], schemas: dict[str, Any], *path: str) -> list[dict[str, Any]]:
    """The fields of a body; those of an object with known fields come in its place."""
    schema = _resolved(schema, schemas)
    required = set(schema.get("required", ()))
    found = []
    for name, entry in schema.get("properties", {}).items():
        inner = _resolved(entry, schemas)
        if inner.get("properties"):
            needed = required if name in required else set()
            fields = _fields(inner, schemas, *path, name)
            found += fields if name in needed else [{**field, "required": False} for field in fields]
        else:
            text = entry.get("description") or inner.get("description", "")
            found.append(_parameter((*path, name), inner, name in required, text))
    return found


def _resolved(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """A schema without references and without `null`."""
    if "$ref" in schema:
        return _resolved(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    choices = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if len(choices) == 1:
        return {**_resolved(choices[0], schemas), **{name: schema[name] for name in ("enum",) if name in schema}}
    return schema


def _parameter(path: tuple[str, ...], schema: dict[str, Any], required: bool, text: str) -> dict[str, Any]:
    schema = _resolved(schema, {})
    kind = schema.get("type", "object")
    if kind == "array":
        kind = "strings" if schema["items"].get("type") == "string" else "objects"
    more = {"choices": schema["enum"]} if "enum" in schema else {}
    if schema.get("writeOnly"):
        more["secret"] = True
    return {"path": list(path), "kind": kind, "required": required, "help": " ".join(text.split()), **more}
