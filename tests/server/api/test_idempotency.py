"""A request with an Idempotency-Key is carried out once, whatever happens in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.responses import JSONResponse, StreamingResponse

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.idempotency import REPLAYED, Router, long_running
from plugbay.server.app import create_app
from plugbay.server.domain.credentials import operator_token
from plugbay.server.domain.errors import conflict
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import OPERATOR
from plugbay.store.pages import Page
from tests.server.api.test_middleware import code
from tests.support.gateways import client_of, gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.requirements import requirement

KEY = {"idempotency-key": "key-1"}


@requirement("vai:control-idempotency")
def test_the_same_request_again_has_the_first_answer_and_no_effect(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway, client_of(gateway) as client:
            first = await client.post(
                "/v1/orgs", json={"name": "Acme", "policy": {"network": "none", "max_concurrency": 1}}, headers=KEY
            )
            again = await client.post(
                "/v1/orgs", json={"policy": {"max_concurrency": 1, "network": "none"}, "name": "Acme"}, headers=KEY
            )
            assert (first.status_code, again.status_code) == (201, 201)
            assert first.json() == again.json() and again.headers[REPLAYED] == "true" and REPLAYED not in first.headers
            other = await client.post("/v1/orgs", json={"name": "Other"}, headers=KEY)
            assert (other.status_code, code(other)) == (409, "idempotency.conflict")
            assert len((await gateway.orgs.page(OPERATOR, Page())).items) == 1

    run(main)


@requirement("vai:control-idempotency")
def test_a_key_counts_for_its_caller_and_path_alone(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            tokens = [await make_key(gateway, "org_1") for _ in range(2)]
            ids = set()
            for token in tokens:
                async with client_of(gateway, token) as client:
                    answer = await client.post("/v1/orgs/org_1/projects", json={"name": "P"}, headers=KEY)
                    ids.add(answer.json()["id"])
                    renamed = await client.patch("/v1/orgs/org_1", json={"name": "P"}, headers=KEY)
                    assert renamed.status_code == 200
            assert len(ids) == 2

    run(main)


@requirement("vai:control-idempotency")
def test_a_request_that_was_refused_is_judged_afresh(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            body = {"name": "P"}
            assert (await client.post("/v1/orgs/org_1/projects", json=body, headers=KEY)).status_code == 404
            await make_org(gateway)
            assert (await client.post("/v1/orgs/org_1/projects", json=body, headers=KEY)).status_code == 201

    run(main)


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"])
def test_what_cannot_be_a_key_is_refused(sqlite_url: str, tmp_path: Path, key: str, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            answer = await client.post("/v1/orgs", json={"name": "x"}, headers={"idempotency-key": key})
            assert (answer.status_code, code(answer)) == (400, "idempotency.invalid_key")

    run(main)


@requirement("vai:control-api-keys")
def test_a_secret_that_is_shown_once_is_not_shown_again(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            body = {"org_id": "org_1", "name": "CI", "role": "viewer"}
            first = (await client.post("/v1/api-keys", json=body, headers=KEY)).json()
            again = (await client.post("/v1/api-keys", json=body, headers=KEY)).json()
            assert first["key"] and again == {**first, "key": None}

    run(main)


@requirement("vai:control-idempotency")
def test_ten_at_once_make_one(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway, client_of(gateway) as client:
            asks = [client.post("/v1/orgs", json={"name": "Acme"}, headers=KEY) for _ in range(10)]
            answers = await asyncio.gather(*asks)
            assert {answer.status_code for answer in answers} <= {201, 409, 503}
            assert len((await gateway.orgs.page(OPERATOR, Page())).items) == 1

    run(main)


# Routes that wait for more than the database, made for this test.

router = Router()
carried_out: list[str] = []


@router.post("/test/errand/{how}", **needs("admin"))
@long_running
async def work(how: str, caller: Caller, gateway: TheGateway) -> Any:
    carried_out.append(how)
    if how == "refused":
        raise conflict("test.refused", "no")
    if how == "answered":
        return JSONResponse({}, 404)
    if how == "broken":
        raise LookupError
    if how == "streamed":
        return StreamingResponse(iter([b"x"]))
    await asyncio.create_task(gateway.orgs.create(caller, "from another task", {}))
    return {"how": how}


@router.post("/test/within/{how}", **needs("admin"))
async def within(how: str, caller: Caller, gateway: TheGateway) -> Any:
    await gateway.orgs.create(caller, how, {})
    return JSONResponse({}, 404)


@asynccontextmanager
async def asking(gateway: Gateway) -> AsyncIterator[httpx2.AsyncClient]:
    app = create_app(gateway)
    app.include_router(router)
    transport = httpx2.ASGITransport(app=app)
    headers = {"authorization": f"Bearer {operator_token(gateway.settings.data)[0]}", **KEY}
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        yield client


@requirement("vai:control-idempotency")
@pytest.mark.parametrize(
    ("how", "first", "again", "times"),
    [
        ("done", 200, 200, 1),
        ("refused", 409, 409, 2),
        ("answered", 404, 404, 2),
        ("broken", 500, 409, 1),
        ("streamed", 200, 409, 1),
    ],
)
def test_work_that_takes_long_is_claimed_before_it_begins(
    sqlite_url: str, tmp_path: Path, run: Run, how: str, first: int, again: int, times: int
) -> None:
    async def main() -> None:
        carried_out.clear()
        async with gateway_at(sqlite_url, tmp_path) as gateway, asking(gateway) as client:
            assert (await client.post(f"/test/errand/{how}")).status_code == first
            assert (await client.post(f"/test/errand/{how}")).status_code == again
            assert carried_out == [how] * times

    run(main)


def test_what_a_handler_changed_is_taken_back_when_it_answers_with_an_error(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, asking(gateway) as client:
            assert (await client.post("/test/within/x")).status_code == 404
            assert (await gateway.orgs.page(OPERATOR, Page())).items == ()

    run(main)
