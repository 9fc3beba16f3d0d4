"""The whole application: its routes, and a document that is true of them."""

from __future__ import annotations

from pathlib import Path

from plugbay.control.app import create_app, unrepeatable
from plugbay.control.idempotency import MUTATING
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
                named = {each["name"] for each in operation.get("parameters", ())}
                assert ("Idempotency-Key" in named) is (method.upper() in MUTATING)

    run(main)


@requirement("vai:control-idempotency")
def test_every_route_that_changes_something_can_be_repeated(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            app = create_app(gateway)
            assert unrepeatable(app) == []

            @app.post("/test")
            async def seeded() -> None:
                return None

            assert unrepeatable(app) == ["/test"]

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
