"""Who comes in, what is asked of every form, and that a cookie opens pages and nothing else."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from plugbay.server.dashboard.authentication import (
    CODE_SECONDS,
    CONTROL,
    LOGIN_BURST,
    LOGINS_PER_SECOND,
    MAX_CODES,
    MAX_FORM_FIELDS,
    MAX_SESSIONS,
    MAX_UNSHOWN,
    SESSION_SECONDS,
    Endpoint,
    Notice,
    Sessions,
    local_path,
    with_error_pages,
)
from plugbay.server.dashboard.routes import ROUTES
from plugbay.server.dashboard.session_file import SessionFile
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.settings import GatewaySettings
from tests.support.clocks import TurnedClock
from tests.support.dashboards import ORIGIN, hosting_at, stranger_to, text_of, visitor_of
from tests.support.gateways import gateway_at, make_key, make_org, openapi_of
from tests.support.loops import Run
from tests.support.plugins import write_plugin

OPEN = {"/login", "/login/{code}", "/static/{name}"}

GUARDED = [(method, route.path) for route in ROUTES for method in sorted(route.methods or ()) if route.path not in OPEN]

NAMES = {
    "try_id": "none",
    "name": "p.jsonl",
    "plugin_id:path": "p",
    "operation": "stop",
    "node": "n1",
    "call_id": "call_1",
    "org_id": "org_1",
    "key_id": "key_1",
    "package": "pkg_1",
    "card_id": "thread-weave",
    "look_id": "look_1",
    "binding_id": "bind_1",
    "invocation_id": "inv_1",
    "delivery_id": "del_1",
    "session_id": "sess_1",
    "chain_id": "chain_1",
    "run_id": "run_1",
    "execution_id": "exec_1",
    "compaction_id": "comp_1",
}


def example(path: str) -> str:
    for name, value in NAMES.items():
        path = path.replace(f"{{{name}}}", value)
    assert "{" not in path
    return path


def test_without_a_session_every_page_leads_to_where_one_logs_in(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, stranger_to(gateway) as visitor:
            visitor.client.cookies.set("plugbay_http", "made-up")
            for method, path in GUARDED:
                answer = await visitor.client.request(method, example(path), headers={"origin": ORIGIN})
                assert answer.status_code == 401, (method, path)
                assert method == "HEAD" or ("Log in" in answer.text and "Your session has ended" in answer.text)
                assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]

    run(main)


@pytest.mark.parametrize(
    "path",
    sorted({path for method, path in GUARDED if not path.removeprefix("/live").startswith((*CONTROL, "/logout"))}),
)
def test_a_key_of_an_org_does_not_see_the_hosts_plugins(sqlite_url: str, tmp_path: Path, run: Run, path: str) -> None:
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            async with visitor_of(gateway, await make_key(gateway, "org_1", "admin")) as visitor:
                post = ("GET", path) not in GUARDED or path.endswith("{operation}")
                answer = await (visitor.post(example(path)) if post else visitor.get(example(path)))
                if path == "/":
                    assert (answer.status_code, answer.headers["location"]) == (303, "/orgs")
                else:
                    assert answer.status_code == 403 and "the operator" in answer.text
                assert "/plugins/p" not in answer.text
            assert str(gateway.host.plugins()[0].state) == "idle", "nothing was done"

    run(main)


def test_a_form_needs_the_key_of_the_session_and_the_origin_of_the_server(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        async with (
            hosting_at(sqlite_url, tmp_path) as gateway,
            visitor_of(gateway) as visitor,
            visitor_of(gateway) as other,
        ):
            stop, good = "/plugins/p:stop", {"form_key": visitor.form_key}
            for key in ("", "made-up", other.form_key, "\ud800".encode("utf-8", "replace").decode()):
                refused = await visitor.post(stop, {"form_key": key})
                assert refused.status_code == 403 and "auth.form_denied" in refused.text
            keyless = await visitor.client.post(stop, data={"a": "b"}, headers={"origin": ORIGIN})
            assert keyless.status_code == 403
            for headers in (
                {"origin": "http://127.0.0.1:3000"},
                {"origin": "http://localhost"},
                {"origin": "null"},
                {"sec-fetch-site": "same-site"},
                {"sec-fetch-site": "cross-site"},
                {},
            ):
                refused = await visitor.client.post(stop, data=good, headers=headers)
                assert refused.status_code == 403, headers
            assert str(gateway.host.plugins()[0].state) == "idle", "nothing was done"
            own = await visitor.client.post(stop, data=good, headers={"sec-fetch-site": "same-origin"})
            assert own.status_code == 303 and str(gateway.host.plugins()[0].state) == "stopped"
            start = await visitor.post("/plugins/p:start")
            assert start.status_code == 303 and str(gateway.host.plugins()[0].state) == "idle"

    run(main)


def test_what_is_no_form_is_refused(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            origin = {"origin": ORIGIN}
            as_json = await visitor.client.post("/logout", json={"form_key": visitor.form_key}, headers=origin)
            assert as_json.status_code == 400
            many = "&".join(f"f{number}=1" for number in range(MAX_FORM_FIELDS + 1))
            kind = {"content-type": "application/x-www-form-urlencoded"}
            assert (await visitor.client.post("/logout", content=many, headers=origin | kind)).status_code == 400
            large = await visitor.client.post("/logout", content=b"a=" + b"x" * (2 << 20), headers=origin | kind)
            assert large.status_code == 413
            assert (await visitor.get("/")).status_code == 200, "still in"

    run(main)


def test_a_cookie_opens_no_part_of_the_api(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            assert (await visitor.get("/")).status_code == 200
            for path in ("/api/v1/plugins", "/api/v1/calls", "/api/v1/events", "/v1/orgs", "/metrics"):
                answer = await visitor.get(path)
                assert (answer.status_code, answer.json()["error"]["code"]) == (401, "auth.missing")
            for path in ("/api/v1/dashboard-links", "/api/v1/calls", "/v1/orgs"):
                assert (await visitor.post(path, {})).status_code == 401

    run(main)


def test_only_a_page_of_the_server_may_listen(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            visitor.app.state.closing.set()  # streams end at once
            for headers in ({"sec-fetch-site": "same-site"}, {"sec-fetch-site": "cross-site"}):
                assert (await visitor.get("/live/plugins", **headers)).status_code == 403
            assert (await visitor.get("/live/plugins", origin="http://127.0.0.1:3000")).status_code == 403
            own = await visitor.get("/live/plugins", **{"sec-fetch-site": "same-origin"})
            assert own.status_code == 200 and own.headers["content-type"].startswith("text/event-stream")
            assert "access-control-allow-origin" not in own.headers

    run(main)


def test_visitors_are_held_to_the_rate_of_the_api(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        settings = GatewaySettings(tmp_path, requests_per_second=0.001, request_burst=4)
        async with gateway_at(sqlite_url, tmp_path, settings=settings) as gateway, visitor_of(gateway) as visitor:
            seen = [(await visitor.get("/")).status_code for _ in range(5)]
            assert seen == [200, 200, 200, 429, 429], "and one to log in"

    run(main)


def test_what_is_not_there_is_a_page_too_and_the_api_keeps_its_envelope(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            missing = await visitor.get("/plugins/<script>alert(1)</script>")
            assert missing.status_code == 404 and "there is no plugin" in text_of(missing)
            assert "<script>alert" not in missing.text and "&lt;script&gt;" in missing.text
            assert "content-security-policy" in missing.headers
            assert (await visitor.get("/v1/nothing")).json()["error"]["code"] == "route.not_found"
            assert (await visitor.client.delete("/plugins/p")).json()["error"]["code"] == "route.method_not_allowed"

    run(main)


def test_every_page_is_counted_by_its_route(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await visitor.get("/plugins/nobody")
            counted = gateway.meters.counters["http_requests"]
            labels = (("method", "GET"), ("route", "/plugins/{plugin_id:path}"), ("status", "404"))
            assert counted[labels] == 1

    run(main)


def test_pages_are_in_no_document_of_the_api(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            paths = openapi_of(gateway)["paths"]
            assert "/api/v1/dashboard-links" in paths
            assert not [path for path in paths if path.startswith(("/login", "/plugins", "/live/", "/calls"))]

    run(main)


@pytest.mark.parametrize(
    ("path", "goes_to"),
    [
        ("/plugins/a/b", "/plugins/a/b"),
        ("/calls", "/calls"),
        ("/plugins", "/plugins"),
        ("/", "/"),
        ("/logout", "/"),
        ("//evil.example/plugins/", "/"),
        ("/plugins/\\evil", "/"),
    ],
)
def test_a_path_that_is_gone_to_is_one_of_ours(path: str, goes_to: str) -> None:
    assert local_path(path) == goes_to


def test_a_code_stands_for_its_token_once() -> None:
    sessions = Sessions(TurnedClock())
    code, other = sessions.create_code("token"), sessions.create_code("another")
    assert len(code) >= 22 and code != other
    assert sessions.redeem(code) == "token"
    assert sessions.redeem(code) is None
    assert sessions.redeem(other[:-1]) is None and sessions.redeem(other + "x") is None
    assert sessions.redeem("\ud800") is None
    assert sessions.redeem(other) == "another"


def test_a_code_is_of_no_use_after_ten_minutes() -> None:
    clock = TurnedClock()
    sessions = Sessions(clock)
    early, late = sessions.create_code("token"), sessions.create_code("token")
    clock.turn(CODE_SECONDS - 1)
    assert sessions.redeem(early) == "token"
    clock.turn(1)
    assert sessions.redeem(late) is None


def test_only_so_many_codes_wait_and_the_oldest_gives_way() -> None:
    sessions = Sessions(TurnedClock())
    codes = [sessions.create_code(str(number)) for number in range(MAX_CODES + 1)]
    assert sessions.redeem(codes[0]) is None
    assert [sessions.redeem(code) for code in codes[1:]] == [str(number) for number in range(1, MAX_CODES + 1)]


def test_trying_is_bounded_and_possible_again_later() -> None:
    clock = TurnedClock()
    sessions = Sessions(clock)
    for _ in range(LOGIN_BURST):
        sessions.count_attempt()
    with pytest.raises(GatewayError) as refused:
        sessions.count_attempt()
    assert refused.value.status == 429 and refused.value.retry_after
    clock.turn(1 / LOGINS_PER_SECOND)
    sessions.count_attempt()


def test_a_session_is_found_by_its_cookie_until_its_time_is_over() -> None:
    clock = TurnedClock()
    sessions = Sessions(clock)
    cookie, session = sessions.begin("token")
    assert sessions.find(cookie) is session and sessions.find(cookie + "x") is None and sessions.find("") is None
    clock.turn(SESSION_SECONDS - 1)
    assert sessions.find(cookie) is session, "being used makes it no longer"
    clock.turn(1)
    assert sessions.find(cookie) is None


def test_a_session_that_was_ended_is_gone_and_others_are_not() -> None:
    sessions = Sessions(TurnedClock())
    (one, _), (other, session) = sessions.begin("token"), sessions.begin("token")
    sessions.end(one)
    sessions.end(one)
    assert sessions.find(one) is None and sessions.find(other) is session


def test_only_so_many_sessions_are_open_and_the_oldest_gives_way() -> None:
    sessions = Sessions(TurnedClock())
    cookies = [sessions.begin("token")[0] for _ in range(MAX_SESSIONS + 1)]
    assert sessions.find(cookies[0]) is None
    assert all(sessions.find(cookie) for cookie in cookies[1:])


def test_a_session_goes_on_after_a_restart_until_its_time_is_over(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        clock, file = TurnedClock(), SessionFile(tmp_path / "s.json")
        sessions = Sessions(clock, file=file)
        (cookie, before), (ended, _) = sessions.begin("token"), sessions.begin("token")
        await sessions.save()
        sessions.end(ended)
        await sessions.save()
        stored = (tmp_path / "s.json").read_text()
        assert cookie not in stored and "token" not in stored.replace('"token":', "") and before.form_key not in stored
        clock.turn(SESSION_SECONDS - 1)
        again = Sessions(clock, file=file)
        after = again.find(cookie)
        assert after is not None and (after.token, after.form_key) == (before.token, before.form_key)
        assert again.find(ended) is None and again.find(cookie + "x") is None
        clock.turn(1)
        assert again.find(cookie) is None and Sessions(clock, file=file).find(cookie) is None

    run(main)


def test_a_clock_that_is_set_back_makes_no_session_longer(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        clock, file = TurnedClock(), SessionFile(tmp_path / "s.json")
        sessions = Sessions(clock, file=file)
        cookie, _ = sessions.begin("token")
        await sessions.save()
        earlier = TurnedClock(clock.now() - 365 * 86_400)
        again = Sessions(earlier, file=file)
        earlier.turn(SESSION_SECONDS - 1)
        assert again.find(cookie) is not None
        earlier.turn(1)
        assert again.find(cookie) is None

    run(main)


def test_every_secret_is_another_and_none_is_shown() -> None:
    sessions = Sessions(TurnedClock())
    (cookie, one), (_, other) = sessions.begin("pb_sk_hunter2"), sessions.begin("pb_sk_hunter2")
    assert len({cookie, one.form_key, other.form_key}) == 3
    assert "hunter2" not in repr(one) and one.form_key not in repr(one)


def test_a_notice_is_shown_once() -> None:
    _, session = Sessions(TurnedClock()).begin("token")
    session.notice = Notice("good", "done")
    assert session.take_notice() == Notice("good", "done")
    assert session.take_notice() is None


def test_of_new_keys_that_no_page_has_shown_a_session_keeps_a_few() -> None:
    _, session = Sessions(TurnedClock()).begin("token")
    for number in range(MAX_UNSHOWN + 1):
        session.show_later(f"key_{number}", f"secret-{number}")
    assert len(session.unshown) == MAX_UNSHOWN and "key_0" not in session.unshown
    assert "secret" not in repr(session)


def test_a_full_disk_is_a_page_and_other_errors_of_files_are_bugs(run: Run) -> None:
    async def main() -> None:
        def failing(number: int) -> Endpoint:
            async def endpoint(request: Request) -> Response:
                raise OSError(number, "no")

            return with_error_pages(endpoint)

        page = await failing(errno.ENOSPC)(Request({"type": "http"}))
        assert page.status_code == 503 and b"disk of the server is full" in page.body
        with pytest.raises(OSError, match="no"):
            await failing(errno.EIO)(Request({"type": "http"}))

    run(main)
