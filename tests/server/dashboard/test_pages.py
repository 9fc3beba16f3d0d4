"""The pages of the host's plugins, and what is done from them."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.ports import CallRecord
from plugbay.model.errors import Code, Failure
from plugbay.server.app import ROUTERS
from plugbay.server.dashboard.authentication import CODE_SECONDS, LOGIN_BURST
from plugbay.server.dashboard.live import SHOWN_CALLS
from plugbay.server.dashboard.pages import ROUTES
from plugbay.server.domain.clock import stamp
from plugbay.server.domain.credentials import operator_token
from plugbay.server.domain.principal import OPERATOR
from plugbay.store import invocations as invocation_rows
from plugbay.store.pages import Page
from tests.store.test_invocations import record
from tests.support.clocks import TurnedClock
from tests.support.dashboards import hosting_at, stranger_to, text_of, visitor_of
from tests.support.databases import run_write
from tests.support.gateways import client_of, gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.packaged import Publisher, bind
from tests.support.patience import until
from tests.support.plugins import write_plugin

SCHEMA = {
    "type": "object",
    "required": ["order"],
    "properties": {
        "order": {"type": "integer", "minimum": 1, "description": "On the receipt."},
        "colour": {"enum": ["red", "blue"], "default": "blue"},
        "gift": {"type": "boolean"},
    },
}

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> \u202e\u0007 {{ 7*7 }}"


def tool(**more: Any) -> list[dict[str, Any]]:
    return [{"name": "t", "description": "Says it again.", "input_schema": SCHEMA, **more}]


# All plugins.


def test_the_list_has_every_plugin_with_problems_first(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "a.good")
    write_plugin(tmp_path / "plugins", "z.pending", capabilities=["tool.execute"])
    (tmp_path / "plugins/half").mkdir()
    (tmp_path / "plugins/half/rterm-plugin.json").write_text('{"plugin_id": "half"}')

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            page = await visitor.get("/")
            shown = text_of(page)
            assert "<title>Plugins · plugbay</title>" in page.text
            assert "2 plugins: 1 pending, 1 idle" in shown
            assert shown.index("z.pending") < shown.index("a.good")
            assert "it requests tool.execute, which is not granted yet" in shown
            assert "Not loaded 1 folder could not be used" in shown and "plugins/half" in shown
            assert 'data-live="/live/plugins"' in page.text and 'href="/plugins/a.good"' in page.text

    run(main)


def test_an_empty_server_shows_the_first_steps(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            shown = text_of(await visitor.get("/"))
            assert "No plugins yet" in shown and "plugbay install weather-1.0.0.tar.gz" in shown

    run(main)


# One plugin.


def test_a_page_of_a_plugin_has_all_that_is_known_of_it(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p", display_name="Pretty", description="Does things.", tools=tool())

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway, visitor_of(gateway) as visitor:
            assert (await gateway.host.attempt("p/t", {"order": 1})).failure is None
            await gateway.calls.flush()
            gateway.host.journal.note("p", "noise", "a line that is no message")
            page = await visitor.get("/plugins/p")
            shown = text_of(page)
            for words in (
                "p Pretty Does things. idle rune · 1 · one process per call",
                "Restart Reload Stop",
                "Calls 1 Failed 0",
                "counters: noise 1",
                "The plugin requests none.",
                "t tool Try Says it again. order: integer, colour?: choice, gift?: flag",
                "noise: a line that is no message",
                "t succeeded",
                "command ./run.sh",
            ):
                assert words in shown, words
            assert 'href="/export?export=p%2Ft"' in page.text

    run(main)


def test_a_plugin_is_stopped_started_restarted_and_reloaded(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            for operation, said in (
                ("stop", "p was stopped"),
                ("start", "p was started."),
                ("restart", "p was restarted."),
                ("reload", "p was reloaded."),
            ):
                done = await visitor.post(f"/plugins/p:{operation}")
                assert (done.status_code, done.headers["location"]) == (303, "/plugins/p")
                assert said in text_of(await visitor.get("/plugins/p"))
            assert "was reloaded" not in text_of(await visitor.get("/plugins/p")), "it is told once"
            for missing in ("/plugins/p:dance", "/plugins/nobody:stop"):
                assert (await visitor.post(missing)).status_code == 404

    run(main)


def test_capabilities_are_granted_and_revoked_and_kept(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p", capabilities=["tool.execute", "files.read"])

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            before = await visitor.get("/plugins/p")
            assert "It does not run until you decide" in text_of(before) and "Restart" not in text_of(before)
            assert " checked" not in before.text, "nothing is granted by default"
            nothing = await visitor.post("/plugins/p:grant")
            assert nothing.status_code == 400 and "select at least one capability" in text_of(nothing)
            done = await visitor.post("/plugins/p:grant", {"capability": "tool.execute"})
            assert done.status_code == 303
            granted = await visitor.get("/plugins/p")
            assert "p may use tool.execute; plugbay.toml keeps the grant" in text_of(granted)
            assert re.search(r"✓ tool\.execute Revoke", text_of(granted))
            assert re.search(r"files\.read new", text_of(granted)), "what is not decided yet is marked"
            assert 'grants = ["tool.execute"]' in (tmp_path / "plugbay.toml").read_text()
            revoked = await visitor.post("/plugins/p:revoke", {"capability": "tool.execute"})
            assert revoked.status_code == 303 and "grants = []" in (tmp_path / "plugbay.toml").read_text()
            again = await visitor.post("/plugins/p:revoke", {"capability": "tool.execute"})
            assert again.status_code == 422

    run(main)


def test_a_capability_that_a_manifest_does_not_request_is_not_granted(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    write_nexo_plugin(tmp_path / "plugins", "shop", tools=["t"])

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            odd = await visitor.post("/plugins/shop:grant", {"capability": "root"})
            assert odd.status_code == 422 and "does not request root" in text_of(odd)

    run(main)


def test_what_is_done_is_in_the_audit_log(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await visitor.post("/plugins/p:stop")
            (entry,) = (await gateway.audit.page(OPERATOR, Page())).items
            assert (entry.action, entry.subject_id, entry.actor_kind) == ("plugin.stop", "p", "operator")

    run(main)


def test_a_failed_operation_is_reported_on_the_page(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    folder = write_nexo_plugin(tmp_path / "plugins", "shop", tools=["t"])
    (folder / "child.py").write_text("raise SystemExit(1)")

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            refused = await visitor.post("/plugins/shop:restart")
            assert refused.status_code == 409 and "shop does not start" in text_of(refused)
            assert "Log" in text_of(refused), "it is the page of the plugin"

    run(main)


# An export, tried.


def test_an_export_is_called_from_a_form(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p", tools=tool())

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway, visitor_of(gateway) as visitor:
            form = await visitor.get("/export?export=p/t")
            assert form.status_code == 200 and "On the receipt." in text_of(form)
            assert re.search(r'type="number" step="1" min="1" value="" [^>]*required', form.text)
            assert '<option value="&#34;blue&#34;" selected>blue</option>' in form.text
            filled = {"field:order": "7", "field:colour": '"red"', "field:gift": ""}
            done = await visitor.post("/export?export=p/t", filled)
            assert done.status_code == 200 and '"order": 7, "colour": "red" }' in text_of(done)
            assert "succeeded" in text_of(done) and re.search(r"\d ms · call_", text_of(done))
            assert 'value="7"' in done.text, "the form keeps what was typed"
            (call_id,) = re.findall(r"/calls/(call_\w+)", done.text)
            assert "succeeded" in text_of(await visitor.get(f"/calls/{call_id}"))

    run(main)


def test_an_export_is_called_with_json(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p", tools=tool())

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway, visitor_of(gateway) as visitor:
            form = await visitor.get("/export?export=p/t&as=json")
            assert "&#34;order&#34;: 0" in form.text and "as a form" in text_of(form)
            done = await visitor.post("/export?export=p/t&as=json", {"json": '{"order": 3}', "timeout": "20"})
            assert '{ "order": 3 }' in text_of(done)
            broken = await visitor.post("/export?export=p/t&as=json", {"json": '{"order": '})
            assert broken.status_code == 400 and "invalid JSON" in text_of(broken)
            assert "{&#34;order&#34;: </textarea>" in broken.text, "what was typed is still there"

    run(main)


def test_a_failed_call_shows_the_reason_and_a_hint(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p", capabilities=["tool.execute"], tools=tool(required_capabilities=[]))
    write_plugin(tmp_path / "plugins", "q", script="echo 'no such table' >&2; exit 3\n", tools=tool())

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "q") as gateway, visitor_of(gateway) as visitor:
            denied = text_of(await visitor.post("/export?export=p/t", {"field:order": "1"}))
            assert "failed" in denied and "capability_not_allowed from the policy" in denied
            assert "plugbay grant p tool.execute" in denied
            crashed = text_of(await visitor.post("/export?export=q/t", {"field:order": "1"}))
            assert "crashed" in crashed and "stderr no such table" in crashed
            refused = text_of(await visitor.post("/export?export=q/t", {"field:order": "0"}))
            assert "invalid_input" in refused and "order" in refused

    run(main)


def test_what_was_filled_in_wrongly_is_shown_where_it_was(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p", tools=tool())

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            wrong = await visitor.post("/export?export=p/t", {"field:order": "many"})
            assert wrong.status_code == 400 and "enter a whole number" in text_of(wrong)
            assert 'aria-invalid="true"' in wrong.text
            for timeout in ("soon", "0", "-1", "1e9", "nan"):
                late = await visitor.post("/export?export=p/t", {"field:order": "1", "timeout": timeout})
                assert late.status_code == 400 and "between 0 and 3600 seconds" in text_of(late)
            assert gateway.meters.counters.get("calls", {}) == {}, "nothing was called"
            for missing in ("p/none", "", "t"):
                assert (await visitor.get(f"/export?export={missing}")).status_code == 404
                assert (await visitor.post(f"/export?export={missing}")).status_code == 404

    run(main)


# What strangers say.


def test_no_text_of_a_plugin_is_anything_but_text(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    schema = {
        "type": "object",
        "title": HOSTILE,
        "properties": {HOSTILE: {"type": "string", "title": HOSTILE, "description": HOSTILE, "default": HOSTILE}},
    }
    write_plugin(
        tmp_path / "plugins",
        "p",
        display_name=HOSTILE,
        description=HOSTILE,
        tools=[{"name": "t", "description": HOSTILE, "input_schema": schema}],
    )

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway, visitor_of(gateway) as visitor:
            gateway.host.journal.note("p", "log.info", HOSTILE)
            gateway.host.publish("shop.sold", {HOSTILE: HOSTILE})
            called = await visitor.post("/export?export=p/t&as=json", {"json": json.dumps({HOSTILE: HOSTILE})})
            assert "succeeded" in called.text
            failed = await visitor.post("/export?export=p/t&as=json", {"json": json.dumps({HOSTILE: 7})})
            pages = [called, failed]
            for path in ("/", "/plugins/p", "/export?export=p/t", "/export?export=p/t&as=json", "/events", "/calls"):
                pages.append(await visitor.get(path))
            for page in pages:
                inside = page.text.partition("<body")[2]
                assert "<script" not in inside and "<img src=x" not in inside, page.url
                assert "\u202e" not in page.text and "\u0007" not in page.text and "49" not in inside.split("{{")
            assert "&lt;script&gt;alert(1)&lt;/script&gt;" in pages[3].text and "\\u202e" in pages[3].text

    run(main)


def test_a_description_of_a_megabyte_makes_no_page_of_a_megabyte(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    long = "x" * ((1 << 20) - 1_000)  # with the rest of a manifest, as much as one may have
    write_plugin(tmp_path / "plugins", "p", description=long)
    write_plugin(tmp_path / "plugins", "q", tools=tool(description=long))
    write_plugin(tmp_path / "plugins", "r", tools=tool(input_schema={"type": "object", "description": long}))
    write_plugin(tmp_path / "plugins", "s", display_name=long)

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            assert len(gateway.host.plugins()) == 4
            for path in ("/", *(f"/plugins/{id}" for id in "pqrs"), *(f"/export?export={id}/t" for id in "pqrs")):
                page = await visitor.get(path)
                assert page.status_code == 200 and len(page.text) < 100_000

    run(main)


def call_record(number: int, plugin: str = "p", failure: Failure | None = None) -> CallRecord:
    return CallRecord(f"call_{number}", plugin, "1", "rune", f"export_{number}", 1_000.0 + number, 1.5, failure)


def exports(page: str) -> list[str]:
    return re.findall(r"export_\d+", page)


def test_calls_come_newest_first_and_in_parts(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            assert "None yet." in text_of(await visitor.get("/calls"))
            for number in range(SHOWN_CALLS + 10):
                gateway.calls.finished(call_record(number))
            await gateway.calls.flush()
            first = await visitor.get("/calls")
            assert exports(text_of(first)) == [f"export_{number}" for number in range(59, 9, -1)]
            assert 'data-live="/live/calls"' in first.text
            (older,) = re.findall(r'rel="next" href="([^"]+)"', first.text)
            second = await visitor.get(older)
            assert exports(text_of(second)) == [f"export_{number}" for number in range(9, -1, -1)]
            assert "data-live" not in second.text and "Newest" in text_of(second) and 'rel="next"' not in second.text
            assert (await visitor.get("/calls?cursor=made-up")).status_code == 400

    run(main)


def test_calls_are_narrowed_by_plugin_and_outcome(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            late = Failure(Code.TIMEOUT, "late")
            for each in (call_record(1), call_record(2, "q"), call_record(3, failure=late), call_record(4, "q", late)):
                gateway.calls.finished(each)
            await gateway.calls.flush()
            assert exports(text_of(await visitor.get("/calls?plugin=q"))) == ["export_4", "export_2"]
            failed = await visitor.get("/calls?plugin=p&status=failed")
            assert exports(text_of(failed)) == ["export_3"] and "failed timeout" in text_of(failed)
            assert 'data-live="/live/calls?plugin=p&amp;status=failed"' in failed.text
            assert "None yet." in text_of(await visitor.get("/calls?plugin=%3Cscript%3E&status=odd"))

    run(main)


def test_a_call_has_a_page_with_all_that_was_written_down(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p", script="echo 'no such table' >&2; exit 3\n")

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway, visitor_of(gateway) as visitor:
            result = await gateway.host.attempt("p/t")
            await until(lambda: any("no such table" in line.text for line in gateway.host_logs.tail("p", 10)))
            page = await visitor.get(f"/calls/{result.record.call_id}")
            shown = text_of(page)
            for words in (
                "outcome failed",
                "failure crashed from the",
                "exit exit code 3",
                "plugin p rune · 1",
                "duration",
            ):
                assert words in shown, words
            assert re.search(r"Log of p during the call .*no such table", shown)
            lost = await gateway.host.attempt("nobody/has_this")
            assert "no plugin has this export" in text_of(await visitor.get(f"/calls/{lost.record.call_id}"))
            assert (await visitor.get("/calls/call_none")).status_code == 404

    run(main)


def test_events_are_shown_and_narrowed_by_topic(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            assert 'data-after=""' in (await visitor.get("/events")).text
            await until(lambda: "host events" in gateway.tasks.names)
            for number in range(3):
                gateway.host.publish("shop.sold", {"n": number})
                gateway.host.publish("shop.lost.thing", {"n": number})
            await until(lambda: len(gateway.host_events.recent()) == 6)
            everything = await visitor.get("/events")
            assert len(re.findall(r"shop\.\w+", text_of(everything))) == 6
            (after,) = re.findall(r'data-after="([^"]+)"', everything.text)
            assert gateway.host_events.recent(after=after) == []
            some = await visitor.get("/events?topic=shop.*")
            assert "shop.sold" in text_of(some) and "shop.lost" not in text_of(some)
            assert 'data-live="/live/events?topic=shop.%2A"' in some.text
            odd = await visitor.get("/events?topic=a..b")
            assert odd.status_code == 400 and "is not a topic pattern" in text_of(odd)
            assert (await visitor.get("/live/events?topic=a..b")).status_code == 400

    run(main)


def test_the_operator_sees_every_org(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            assert "No orgs yet" in text_of(await visitor.get("/orgs"))
            await make_org(gateway, "org_1", "proj_1")
            await make_org(gateway, "org_2", "proj_2")
            page = await visitor.get("/orgs")
            assert 'href="/orgs/org_1"' in page.text and 'href="/orgs/org_2"' in page.text
            assert "Plugins" in page.text.partition("<nav")[2].partition("</nav>")[0]
            one = text_of(await visitor.get("/orgs/org_1"))
            assert "A project proj_1" in one and "proj_2" not in one and "Bindings None yet." in one

    run(main)


def test_a_key_of_one_org_sees_that_one_and_no_pages_of_the_host(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway, "org_1", "proj_1")
            await make_org(gateway, "org_2", "proj_2")
            async with visitor_of(gateway, await make_key(gateway, "org_1", "viewer")) as visitor:
                page = await visitor.get("/orgs")
                assert "org_1" in page.text and "org_2" not in page.text
                assert "Plugins" not in page.text.partition("<nav")[2].partition("</nav>")[0]
                assert (await visitor.get("/orgs/org_1")).status_code == 200
                missing = await visitor.get("/orgs/org_2")
                assert missing.status_code == 404
                nobodys = await visitor.get("/orgs/org_9")
                assert text_of(missing).replace("org_2", "") == text_of(nobodys).replace("org_9", "")

    run(main)


def test_what_is_bound_and_the_packages_there_are(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            package = await Publisher(tmp_path, tmp_path).bring(gateway)
            await bind(gateway, package)
            async with visitor_of(gateway, await make_key(gateway, "org_1", "viewer")) as visitor:
                packages = text_of(await visitor.get("/orgs"))
                assert f"{package.package_id} {package.version} available verified" in packages
                bound = text_of(await visitor.get("/orgs/org_1"))
                assert f"t tool {package.package_id} {package.version} proj_1 active 100 %" in bound

    run(main)


def test_a_link_logs_in_once(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, stranger_to(gateway) as visitor:
            link = visitor.dashboard.link("", operator_token(tmp_path)[0])
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
                done = await visitor.get(visitor.dashboard.link(base, token))
                value, *rules = done.headers["set-cookie"].split("; ")
                assert value.startswith(f"{name}=") and token not in done.headers["set-cookie"]
                assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"} <= set(rules)
                assert ("Secure" in rules) is secure and not any(rule.startswith("Domain") for rule in rules)

    run(main)


def test_a_link_is_of_no_use_when_it_is_old_or_made_up(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        clock = TurnedClock()
        async with gateway_at(sqlite_url, tmp_path, clock=clock) as gateway, stranger_to(gateway) as visitor:
            old, good = (visitor.dashboard.link("", operator_token(tmp_path)[0]) for _ in range(2))
            assert (await visitor.get("/login/made-up")).status_code == 401
            assert (await visitor.get(good)).status_code == 303
            clock.turn(CODE_SECONDS)
            assert (await visitor.get(old)).status_code == 401

    run(main)


def test_login_attempts_are_limited(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        clock = TurnedClock()
        async with gateway_at(sqlite_url, tmp_path, clock=clock) as gateway, stranger_to(gateway) as visitor:
            good = visitor.dashboard.link("", operator_token(tmp_path)[0])
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
            link = visitor.dashboard.link("", operator_token(tmp_path)[0])
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
            link = visitor.dashboard.link("", operator_token(tmp_path)[0])
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
            assert wrong.status_code == 401 and "This key is not known here." in text_of(wrong)
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


def test_only_static_files_are_public(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, stranger_to(gateway) as visitor:
            for name in ("style.css", "script.js", "icon.svg"):
                found = await visitor.get(f"/static/{name}")
                assert found.status_code == 200 and found.headers["x-content-type-options"] == "nosniff"
            for name in ("door.py", "..%2fdoor.py", "style"):
                assert (await visitor.get(f"/static/{name}")).status_code == 404

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


def test_no_page_stands_where_the_api_is() -> None:
    pages = {(method, route.path) for route in ROUTES for method in route.methods or ()}
    assert len(pages) == sum(len(route.methods or ()) for route in ROUTES)
    api = {route.path.split("/")[1] for router in ROUTERS for route in router.routes}  # type: ignore[attr-defined]
    assert {path.split("/")[1] for _, path in pages}.isdisjoint(api)


def test_what_changes_something_is_never_a_link() -> None:
    changing = {route.path for route in ROUTES if "POST" in (route.methods or ())}
    assert changing == {"/login", "/logout", "/plugins/{plugin_id:path}:{operation}", "/export"}
    assert all(not {"GET", "POST"} <= set(route.methods or ()) for route in ROUTES)
