"""Unknown query parameters are refused on every route, from what the route itself declares."""

from __future__ import annotations

import re
from pathlib import Path

from fastapi.routing import APIRoute

from plugbay.server.api.caller import NEEDS
from plugbay.server.api.queries import known_parameters
from plugbay.server.app import ROUTERS
from tests.support.gateways import client_of, gateway_at, openapi_of
from tests.support.loops import Run
from tests.support.requirements import requirement


@requirement("vai:control-unknown-parameters")
def test_every_route_refuses_a_parameter_that_it_does_not_have(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            paths = openapi_of(gateway)["paths"]
            operations = [(path, method, op) for path, item in paths.items() for method, op in item.items()]
            assert len(operations) > 90
            for path, method, operation in operations:
                place = re.sub(r"\{\w+\}", "x", path)
                known = sorted(each["name"] for each in operation.get("parameters", ()) if each["in"] == "query")
                answer = await client.request(method, place, params={"lmit": "5"})
                error = answer.json()["error"]
                assert (answer.status_code, error["code"]) == (400, "request.unknown_parameter"), f"{method} {path}"
                assert (error["param"], error["details"]["known"]) == ("lmit", known)
                assert "lmit" in error["message"] and all(name in error["message"] for name in known)
                if NEEDS in operation:
                    nobody = await client.request(
                        method, place, params={"lmit": "5"}, headers={"authorization": "Bearer wrong"}
                    )
                    assert nobody.status_code == 401, f"{method} {path}"

    run(main)


@requirement("vai:control-unknown-parameters")
def test_a_parameter_of_the_route_and_of_what_it_depends_on_is_known(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            assert (await client.get("/v1/plugin-bindings", params={"limit": "1", "kind": "tool"})).status_code == 200
            # A parameter without a value, and one beside known ones, are unknown too.
            for query in ("?x", "?limit=1&x=", "?Limit=1"):
                refused = await client.get(f"/v1/plugin-bindings{query}")
                assert refused.json()["error"]["code"] == "request.unknown_parameter", query

    run(main)


def test_the_known_parameters_are_those_of_the_route_and_its_dependencies() -> None:
    routes = {route.path: route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)}
    assert known_parameters(routes["/v1/compactions"].dependant) == ["chain_id", "cursor", "limit", "status"]
    assert known_parameters(routes["/livez"].dependant) == []
