"""The whole application: its routes, and a document that is true of them."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

from fastapi import Depends
from fastapi.routing import APIRoute

from plugbay.server.api.errors import STATUSES
from plugbay.server.api.idempotency import MUTATING, Router
from plugbay.server.app import ROUTERS, create_app, routes_without_idempotency
from tests.support.gateways import client_of, gateway_at
from tests.support.loops import Run
from tests.support.requirements import requirement


@requirement("vai:control-openapi")
def test_the_document_names_every_error_and_where_requests_can_be_repeated(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            document = (await client.get("/openapi.json")).json()
            assert document["components"]["securitySchemes"] == {"key": {"type": "http", "scheme": "bearer"}}
            operations = [(method, op) for path in document["paths"].values() for method, op in path.items()]
            assert len(operations) > 40
            names = [op["operationId"] for _, op in operations]
            assert len(set(names)) == len(names)
            for method, operation in operations:
                assert {"400", "401", "403", "404", "429", "500", "503"} <= set(operation["responses"])
                schema = operation["responses"]["404"]["content"]["application/json"]["schema"]["$ref"]
                assert schema.rpartition("/")[2] in document["components"]["schemas"]
                named = {each["name"] for each in operation.get("parameters", ())}
                assert ("Idempotency-Key" in named) is (method.upper() in MUTATING)

    run(main)


@requirement("host:start-light")
def test_no_route_builds_a_validator_for_the_errors_that_it_documents() -> None:
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    built = {(route.path, status) for route in routes for status in route.response_fields if status in STATUSES}
    assert built == {("/readyz", 503)}  # a model of its own
    assert len(routes) > 100 and all(set(STATUSES) <= set(route.responses) for route in routes)


@requirement("vai:control-idempotency")
def test_every_route_that_changes_something_can_be_repeated(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            app = create_app(gateway)
            assert routes_without_idempotency(app) == []

            @app.post("/test")
            async def seeded() -> None:
                return None

            assert routes_without_idempotency(app) == ["/test"]

    run(main)


@requirement("vai:control-error-envelope")
def test_what_is_not_there_is_told_in_the_envelope(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            missing = await client.get("/v1/nothing")
            assert (missing.status_code, missing.json()["error"]["code"]) == (404, "route.not_found")
            wrong = await client.delete("/v1/orgs")
            assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "route.method_not_allowed")
            assert "GET" in wrong.headers["allow"] or "POST" in wrong.headers["allow"]

    run(main)


def called_in_threads(router: Router) -> Iterator[str]:
    """What FastAPI calls in a thread for a request: handlers and dependencies that are plain functions."""
    for route in router.routes:
        assert isinstance(route, APIRoute)
        todo: list[Any] = [route.dependant]
        for dependant in todo:
            todo += dependant.dependencies
            if not iscoroutinefunction(dependant.call):
                yield f"{route.path}: {dependant.call.__name__}"


def test_no_request_waits_for_a_thread_only_to_be_given_its_arguments() -> None:
    assert [found for router in ROUTERS for found in called_in_threads(router)] == []
    seeded = Router()

    def plain() -> int:
        return 1

    @seeded.get("/test", dependencies=[Depends(plain)])
    async def handler() -> None:
        return None

    assert list(called_in_threads(seeded)) == ["/test: plain"]
