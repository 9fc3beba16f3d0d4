"""A direct route answers as FastAPI does, also when it refuses, and leaves to FastAPI what it does not take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.routing import APIRoute

from plugbay.server.api.direct import DirectRoutes
from plugbay.server.app import ROUTERS, create_app
from tests.support.gateways import client_of, gateway_at, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.vai import export

PATH = "/v1/plugin-invocations"

REFUSED: dict[str, dict[str, Any]] = {
    "no key": {"headers": {"authorization": ""}},
    "an unknown key": {"headers": {"authorization": "Bearer pb_sk_invented"}},
    "an unknown binding": {"json": {"binding_id": "bind_none"}},
    "an unknown field": {"json": {"binding_id": "bind_none", "colour": "red"}},
    "neither binding nor export": {"json": {}},
    "no object": {"json": [1]},
    "no JSON": {"content": b"{", "headers": {"content-type": "application/json"}},
    "a key twice": {"content": b'{"wait":true,"wait":true}', "headers": {"content-type": "application/json"}},
    "a query": {"params": {"wait": "1"}, "json": {}},
    "a long trace": {"json": {"binding_id": "bind_none"}, "headers": {"traceparent": "0" * 600}},
}


def told(answer: httpx2.Response) -> Any:
    headers = {name: value for name, value in answer.headers.items() if name not in ("x-request-id", "traceparent")}
    body = answer.json()
    body.get("error", {}).pop("request_id", None)
    return answer.status_code, headers, body


def test_it_refuses_as_fastapi_does(sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            answers = [{name: told(await client.post(PATH, **sent)) for name, sent in REFUSED.items()}]

            async def never(*_: object) -> bool:
                return False

            monkeypatch.setattr(DirectRoutes, "answer", never)
            answers.append({name: told(await client.post(PATH, **sent)) for name, sent in REFUSED.items()})
            assert answers[0] == answers[1]
            assert {status for status, _, _ in answers[0].values()} == {400, 401, 404}

    run(main)


def test_it_answers_without_fastapi_and_is_measured_by_its_route(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            bound = await bind(gateway, await Publisher(tmp_path, tmp_path).bring(gateway, exports=[export("t")]))
            asked: list[str] = []
            handle = APIRoute.handle

            async def seen(self: APIRoute, scope: Any, receive: Any, send: Any) -> None:
                asked.append(self.path)
                await handle(self, scope, receive, send)

            monkeypatch.setattr(APIRoute, "handle", seen)
            body = {"binding_id": bound.id, "input": {"text": "tea"}}
            async with client_of(gateway) as client:
                first = await client.post(PATH, json=body)
                assert (first.status_code, first.json()["status"], asked) == (200, "succeeded", [])
                again = await client.post(PATH, json=body, headers={"idempotency-key": "k1"})
                assert (again.status_code, asked) == (200, [PATH])
            labels = (("method", "POST"), ("route", PATH), ("status", "200"))
            assert gateway.meters.counters["http_requests"][labels] == 2

    run(main)


def test_direct_routes_have_no_parameters_in_their_paths() -> None:
    found = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    marked = [route.path for route in found if "bind" in getattr(route.endpoint, "__dict__", {})]
    assert marked == [PATH] and "{" not in PATH


def test_the_application_has_them(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            assert list(DirectRoutes(create_app(gateway).routes)._routes) == [("POST", PATH)]

    run(main)
