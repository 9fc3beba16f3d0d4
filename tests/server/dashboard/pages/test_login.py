"""Login, logout and login links."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from plugbay.server.dashboard.authentication import CODE_SECONDS, LOGIN_BURST
from plugbay.server.domain.clock import stamp
from plugbay.server.domain.credentials import TOKEN_FILE, operator_token
from plugbay.server.domain.principal import OPERATOR
from plugbay.store import invocations as invocation_rows
from plugbay.store.pages import Page
from tests.store.test_invocations import record
from tests.support.clocks import TurnedClock
from tests.support.dashboards import stranger_to, text_of, visitor_of
from tests.support.databases import run_write
from tests.support.gateways import client_of, gateway_at, make_key, make_org
from tests.support.loops import Run


def test_a_link_logs_in_once(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, stranger_to(gateway) as visitor:
            link = await visitor.dashboard.link("", operator_token(tmp_path)[0])
            assert (await visitor.get("/")).status_code == 401
            done = await visitor.get(link)
            assert (done.status_code, done.headers["location"]) == (303, "/")
            assert (await visitor.get("/")).status_code == 200
            visitor.client.cookies.clear()
            again = await visitor.get(link)
            assert again.status_code == 401 and "already used" in again.text
            assert "set-cookie" not in again.headers

    run(main)


def test_the_cookie_is_for_this_server_alone_and_no_script_reads_it(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, stranger_to(gateway) as visitor:
            token = operator_token(tmp_path)[0]
            for base, name, secure in (
                ("http://127.0.0.1:8787", "plugbay_8787", False),
                ("http://localhost", "plugbay_http", False),
                ("https://localhost", "plugbay_https", True),
            ):
                done = await visitor.get(await visitor.dashboard.link(base, token))
                value, *rules = done.headers["set-cookie"].split("; ")
                assert value.startswith(f"{name}=") and token not in done.headers["set-cookie"]
                assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"} <= set(rules)
                assert ("Secure" in rules) is secure and not any(rule.startswith("Domain") for rule in rules)

    run(main)


def test_a_link_is_of_no_use_when_it_is_old_or_made_up(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        clock = TurnedClock()
        async with gateway_at(sqlite_url, tmp_path, clock=clock) as gateway, stranger_to(gateway) as visitor:
            old, good = [await visitor.dashboard.link("", operator_token(tmp_path)[0]) for _ in range(2)]
            assert (await visitor.get("/login/made-up")).status_code == 401
            assert (await visitor.get(good)).status_code == 303
            clock.turn(CODE_SECONDS)
            assert (await visitor.get(old)).status_code == 401

    run(main)


def test_login_attempts_are_limited(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        clock = TurnedClock()
        async with gateway_at(sqlite_url, tmp_path, clock=clock) as gateway, stranger_to(gateway) as visitor:
            good = await visitor.dashboard.link("", operator_token(tmp_path)[0])
            for number in range(LOGIN_BURST):
                path = "/login/guess" if number % 2 else "/login"
                tried = await (visitor.get(path) if number % 2 else visitor.post(path, {"token": "pb_sk_guess"}))
                assert tried.status_code == 401
            for refused in (await visitor.get("/login/guess"), await visitor.get(good), await visitor.post("/login")):
                assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
            clock.turn(60)
            assert (await visitor.get(good)).status_code == 303, "nobody has used it up"

    run(main)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_no_other_page_logs_a_browser_in(sqlite_url: str, tmp_path: Path, run: Run, site: str) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, stranger_to(gateway) as visitor:
            link = await visitor.dashboard.link("", operator_token(tmp_path)[0])
            led = await visitor.get(link, **{"sec-fetch-site": site})
            assert led.status_code == 200 and "set-cookie" not in led.headers and "Open the dashboard?" in led.text
            looked = await visitor.client.head(link)
            assert looked.status_code == 200 and "set-cookie" not in looked.headers
            assert link.rpartition("/")[2] not in led.text
            clicked = await visitor.get(link, **{"sec-fetch-site": "same-origin"})
            assert clicked.status_code == 303, "and looking has not used it up"

    run(main)


def test_a_code_is_not_in_the_log(sqlite_url: str, tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "plugbay.access")

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, stranger_to(gateway) as visitor:
            link = await visitor.dashboard.link("", operator_token(tmp_path)[0])
            await visitor.get(link, **{"sec-fetch-site": "cross-site"})
            code = link.rpartition("/")[2]
            for damaged in (f"{link}/extra", f"/x{link}", link.replace("login", "LOGIN"), f"{link}."):
                await visitor.get(damaged)
            await visitor.get("/calls")
            logged = [vars(record)["path"] for record in caplog.records if record.name == "plugbay.access"]
            assert logged == [*["/login/{code}"] * 2, "/x/login/{code}", *["/login/{code}"] * 2, "/calls"]
            assert code not in caplog.text

    run(main)


def test_a_token_can_be_pasted_and_leads_to_where_one_wanted_to_go(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, stranger_to(gateway) as visitor:
            asked = await visitor.get("/events")
            assert asked.status_code == 401 and 'name="goes_to" value="/events"' in asked.text
            assert "plugbay dashboard" in text_of(asked)
            wrong = await visitor.post("/login", {"token": "pb_sk_wrong"})
            assert wrong.status_code == 401 and "This key is unknown." in text_of(wrong)
            for nothing in ({}, {"token": ""}, {"token": "x" * 10_000}):
                assert (await visitor.post("/login", nothing)).status_code == 401
            token = operator_token(tmp_path)[0]
            done = await visitor.post("/login", {"token": f" {token}\n", "goes_to": "/events"})
            assert (done.status_code, done.headers["location"]) == (303, "/events")
            page = await visitor.get("/events")
            assert page.status_code == 200 and token not in page.text

    run(main)


@pytest.mark.parametrize(
    "elsewhere",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "/plugins/\\", "javascript:1", "", "/v1"],
)
def test_logging_in_leads_to_no_other_site(sqlite_url: str, tmp_path: Path, run: Run, elsewhere: str) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, stranger_to(gateway) as visitor:
            done = await visitor.post("/login", {"token": operator_token(tmp_path)[0], "goes_to": elsewhere})
            assert (done.status_code, done.headers["location"]) == (303, "/")

    run(main)


def test_a_page_of_another_origin_cannot_give_a_token(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, stranger_to(gateway) as visitor:
            form = {"token": operator_token(tmp_path)[0]}
            for origin in ("http://127.0.0.1:3000", "http://localhost", "https://evil.example", "null", "http://["):
                assert (await visitor.post("/login", form, origin=origin)).status_code == 403
            assert (await visitor.post("/login", form)).status_code == 303

    run(main)


def test_a_plugins_own_token_sees_no_pages(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, stranger_to(gateway) as visitor:
            await make_org(gateway)
            async with gateway.database.transaction() as tx:
                await run_write(tx, invocation_rows.opening(record(binding_id=None, project_id="proj_1")))
            now = gateway.clock.now()
            claims: dict[str, Any] = {
                "invocation_id": "inv_1",
                "binding_id": None,
                "org_id": "org_1",
                "project_id": "proj_1",
                "session_id": None,
                "execution_id": "exec_1",
                "scopes": ["runs:read"],
                "policy": {},
                "issued_at": stamp(now),
                "expires_at": stamp(now + 60),
            }
            token = await gateway.credentials.issue(claims)
            refused = await visitor.post("/login", {"token": token})
            assert "auth.scope_denied" in refused.text, "it is known who asks"
            assert refused.status_code == 403 and "set-cookie" not in refused.headers

    run(main)


def test_a_logout_ends_the_session_on_the_server(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            cookies = dict(visitor.client.cookies)
            done = await visitor.post("/logout")
            assert (done.status_code, done.headers["location"]) == (303, "/")
            assert "Max-Age=0" in done.headers["set-cookie"]
            assert (await visitor.get("/")).status_code == 401
            for name, value in cookies.items():
                visitor.client.cookies.set(name, value)
            assert (await visitor.get("/")).status_code == 401, "the cookie opens nothing any more"

    run(main)


def test_logging_in_again_ends_the_session_before(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            (before,) = visitor.client.cookies.values()
            await visitor.log_in(operator_token(tmp_path)[0])
            assert visitor.dashboard.sessions.find(before) is None
            assert (await visitor.get("/")).status_code == 200

    run(main)


def test_a_session_ends_with_its_key(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            key = await make_key(gateway, "org_1", "viewer")
            async with visitor_of(gateway, key) as visitor:
                assert (await visitor.get("/orgs")).status_code == 200
                (made,) = (await client.get("/v1/api-keys")).json()["items"]
                await client.delete(f"/v1/api-keys/{made['id']}")
                assert (await visitor.get("/orgs")).status_code == 401
                (cookie,) = visitor.client.cookies.values()
                assert visitor.dashboard.sessions.find(cookie) is None

    run(main)


def test_a_session_outlives_a_restart_but_not_its_key(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            key = await make_key(gateway, "org_1", "viewer")
            async with visitor_of(gateway, key) as viewer, visitor_of(gateway) as operator:
                cookies = [dict(each.client.cookies) for each in (viewer, operator)]
                link = await operator.dashboard.link("", operator_token(tmp_path)[0])
                form_key = operator.form_key
        async with (
            gateway_at(sqlite_url, tmp_path) as gateway,
            stranger_to(gateway) as viewer,
            stranger_to(gateway) as operator,
        ):
            viewer.client.cookies.update(cookies[0])
            operator.client.cookies.update(cookies[1])
            assert (await viewer.get("/orgs")).status_code == 200
            assert (await viewer.get("/calls")).status_code == 403, "no more than the key"
            assert (await operator.get("/calls")).status_code == 200
            assert operator.form_key == form_key, "a form from before is still good"
            assert (await operator.get(link)).status_code == 401, "links end with the server"
            (made,) = (await gateway.keys.page(OPERATOR, Page())).items
            await gateway.keys.revoke(OPERATOR, made.id)
            assert (await viewer.get("/orgs")).status_code == 401
            assert (await operator.post("/logout")).status_code == 303
        async with gateway_at(sqlite_url, tmp_path) as gateway, stranger_to(gateway) as visitor:
            for cookie in cookies:
                visitor.client.cookies.update(cookie)
                assert (await visitor.get("/orgs")).status_code == 401

    run(main)


def test_a_session_of_the_operator_ends_with_the_operators_token(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            cookies = dict(visitor.client.cookies)
        (tmp_path / TOKEN_FILE).unlink()
        async with gateway_at(sqlite_url, tmp_path) as gateway, stranger_to(gateway) as visitor:
            visitor.client.cookies.update(cookies)
            assert (await visitor.get("/")).status_code == 401

    run(main)


def test_a_key_gets_a_link_that_logs_in_with_its_rights(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        clock = TurnedClock()
        async with gateway_at(sqlite_url, tmp_path, clock=clock) as gateway:
            await make_org(gateway)
            key = await make_key(gateway, "org_1", "viewer")
            async with client_of(gateway, key) as client:
                made = await client.post("/api/v1/dashboard-links")
                assert made.status_code == 201
                assert made.json()["expires_at"] == stamp(clock.now() + CODE_SECONDS)
                assert made.json()["url"].startswith("http://127.0.0.1/login/") and key not in made.text
                del client.headers["authorization"]
                assert (await client.get(made.json()["url"])).status_code == 303
                assert (await client.get("/orgs/org_1")).status_code == 200
                assert (await client.get("/calls")).status_code == 403, "no more than the key"
                assert (await client.post("/api/v1/dashboard-links")).status_code == 401

    run(main)


def test_a_link_is_of_the_address_under_which_it_was_asked_for(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            made = await client.post("/api/v1/dashboard-links", headers={"host": "localhost:9000"})
            assert made.json()["url"].startswith("http://localhost:9000/login/")

    run(main)


def test_a_repeated_request_returns_no_link(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            headers = {"idempotency-key": "once"}
            first, again = [await client.post("/api/v1/dashboard-links", headers=headers) for _ in range(2)]
            assert first.json()["url"] and again.json()["url"] is None

    run(main)
