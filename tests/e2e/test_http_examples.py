"""The example of every request body is sent to a real server, and accepted.

Examples are on the models of the bodies (`api.models.example`). Ids and names that exist only in the world of a test
replace those of an example.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.test_http_authorisation import ASKS, OPERATOR_ALONE, ROUTES, needs_of
from tests.support.requirements import requirement
from tests.support.worlds import World, world_at


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_at(tmp_path_factory.mktemp("world")) as world:
        yield world


JSON = "application/json"

OF_THE_WORLD = frozenset(
    "org_id project_id session_id chain_id run_id binding_id package_id package_version export_id digest screen plugin "
    "action namespace export capabilities status package public_key publisher".split()
)
"""Fields that name things: those of the world's own good request are used."""

NOT_THERE = {"POST /v1/plugin-packages": "package.registry_failed"}
"""The example names a registry that does not exist; its body is accepted."""

WITHOUT: dict[str, tuple[str, ...]] = {
    "POST /v1/plugin-bindings": ("config", "secrets"),
    "POST /v1/plugin-invocations": ("session_id",),
}
"""Fields that fit the package of the example only, or another thing of the world."""


def body_names() -> list[str]:
    return [name for name, route in ROUTES.items() if schema_of(route) is not None]


def schema_of(route: Any) -> Any:
    """The schema of a route's JSON body; None: it has none."""
    if route.body_field is not None:
        return route.body_field.field_info.annotation.model_json_schema()
    content = (route.openapi_extra or {}).get("requestBody", {}).get("content", {})
    return content.get(JSON, {}).get("schema")


def for_world(example: Any, good: Any) -> Any:
    """The example with the things that a good request names."""
    if not isinstance(example, dict) or not isinstance(good, dict):
        return example
    return {
        name: good[name] if name in OF_THE_WORLD and name in good else for_world(value, good.get(name, good))
        for name, value in example.items()
        if name not in OF_THE_WORLD or name in good
    }


@requirement("vai:control-examples")
def test_every_body_has_an_example_in_the_openapi_document(world: World) -> None:
    names = body_names()
    assert len(names) > 30
    for name in names:
        method, path = name.split()
        operation = world.openapi["paths"][ROUTES[name].path_format][method.lower()]
        schema = operation["requestBody"]["content"][JSON]["schema"]
        if "$ref" in schema:
            schema = world.openapi["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        (example,) = schema["examples"]
        assert example and set(example) <= set(schema["properties"]), path


@requirement("vai:control-examples")
@pytest.mark.parametrize("name", body_names())
def test_the_example_of_a_body_is_accepted(name: str, world: World) -> None:
    ask = ASKS[name](world)
    (example,) = schema_of(ROUTES[name])["examples"]
    body = {key: value for key, value in for_world(example, ask.body or {}).items() if key not in WITHOUT.get(name, ())}
    who = "bootstrap" if name in OPERATOR_ALONE or "host" in needs_of(name).everything else "admin"
    answer = world.ask(who, name.split()[0], ask.path, ending=name.endswith(":stream"), json=body)
    if name in NOT_THERE:
        assert answer.json()["error"]["code"] == NOT_THERE[name], answer.text
    else:
        assert answer.is_success, answer.text
    # The same with a field that no body has is refused, so the body was read.
    more = world.ask(who, name.split()[0], ask.path, json={**body, "nonsense": 1})
    assert (more.status_code, more.json()["error"]["code"]) == (400, "request.invalid"), more.text
