"""Pages of the host's plugins, and the operations of their buttons."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

from plugbay.server.dashboard.live import PluginsFeed
from plugbay.server.dashboard.views.plugins import ListFilter
from plugbay.server.domain.principal import OPERATOR
from plugbay.store.pages import Page
from tests.support.dashboards import hosting_at, text_of, visitor_of
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import until
from tests.support.plugins import write_plugin
from tests.support.tiers import exhaustive

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


def test_the_list_has_every_plugin_with_problems_first(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "a.good")
    write_plugin(tmp_path / "plugins", "z.pending", capabilities=["tool.execute"])
    (tmp_path / "plugins/half").mkdir()
    (tmp_path / "plugins/half/rterm-plugin.json").write_text('{"plugin_id": "half"}')

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            page = await visitor.get("/plugins")
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
            shown = text_of(await visitor.get("/plugins"))
            assert "No plugins yet" in shown and "plugbay install weather-1.0.0.tar.gz" in shown

    run(main)


def test_a_page_of_a_plugin_has_all_that_is_known_of_it(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p", display_name="Pretty", description="Does things.", tools=tool())

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway, visitor_of(gateway) as visitor:
            assert (await gateway.host.attempt("p/t", {"order": 1})).failure is None
            await gateway.calls.flush()
            gateway.host.journal.note("p", "noise", "a line that is not a message")
            page = await visitor.get("/plugins/p")
            shown = text_of(page)
            for words in (
                "p Pretty State Settings Log Wire Does things. idle rune · 1 · one process per call",
                "Restart Reload Stop",
                "Calls 1 Failed calls 0",
                "Noted by the host: noise 1",
                "The plugin requests no capabilities.",
                "t tool Try Says it again. order: integer, colour?: choice, gift?: flag",
                "noise: a line that is not a message",
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
            for path in (
                "/",
                "/plugins",
                "/plugins/p",
                "/export?export=p/t",
                "/export?export=p/t&as=json",
                "/events",
                "/calls",
            ):
                pages.append(await visitor.get(path))
            for page in pages:
                inside = page.text.partition("<body")[2]
                assert "<script" not in inside and "<img src=x" not in inside, page.url
                assert "\u202e" not in page.text and "\u0007" not in page.text and "49" not in inside.split("{{")
            assert "&lt;script&gt;alert(1)&lt;/script&gt;" in pages[4].text and "\\u202e" in pages[4].text

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
            for path in (
                "/",
                "/plugins",
                *(f"/plugins/{id}" for id in "pqrs"),
                *(f"/export?export={id}/t" for id in "pqrs"),
            ):
                page = await visitor.get(path)
                assert page.status_code == 200 and len(page.text) < 100_000

    run(main)


def test_selected_plugins_get_exactly_what_was_shown(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    for name in ("a", "b", "c"):
        write_plugin(tmp_path / "plugins", name, capabilities=["tool.execute", "files.read"])

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            page = await visitor.get("/plugins")
            requests = [unescape(found) for found in re.findall(r'name="request" value="([^"]+)"', page.text)]
            assert requests[0] == '["a","tool.execute","files.read"]' and len(requests) == 3
            none = await visitor.post("/plugins")
            assert none.status_code == 400 and "Select at least one plugin." in text_of(none)
            done = await visitor.post("/plugins", {"request": requests[:2]})
            assert (done.status_code, done.headers["location"]) == (303, "/plugins")
            assert "Granted to 2 plugins: a, b." in text_of(await visitor.get("/plugins"))
            states = {status.spec.id: str(status.state) for status in gateway.host.plugins()}
            assert states == {"a": "idle", "b": "idle", "c": "pending"}
            odd = await visitor.post("/plugins", {"request": ['["c","tool.execute"]', '["nobody","x"]']})
            assert odd.status_code == 409 and "Granted to 1 plugin: c." in text_of(odd)
            assert "Not granted: nobody: there is no plugin 'nobody'" in text_of(odd)
            for text in ("{}", "[", '["c"]', '["c", 1]', "[" * 100_000):
                assert (await visitor.post("/plugins", {"request": text})).status_code == 400

    run(main)


@exhaustive
def test_a_list_of_500_plugins_is_paged_searched_and_followed(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    for number in range(500):
        write_plugin(tmp_path / "plugins", f"p{number:03}")

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            page = await visitor.get("/plugins")
            assert page.text.count("<tr id=") == 100 and "page 1 of 5" in text_of(page)
            last = await visitor.get("/plugins?page=5")
            assert 'href="/plugins/p499"' in last.text and 'data-live="/live/plugins?page=5"' in last.text
            found = await visitor.get("/plugins?q=P12&contract=rune&state=idle")
            assert found.text.count("<tr id=") == 10 and "10 of 500 plugins: 500 idle" in text_of(found)
            assert "No plugin matches." in text_of(await visitor.get("/plugins?q=nobody"))
            assert (await visitor.get("/plugins?page=" + "9" * 400)).status_code == 200
            feed = PluginsFeed(visitor.dashboard, ListFilter("p12"))
            assert len(await feed.regions()) == 11

    run(main)


def test_capabilities_are_explained_before_they_are_granted(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p", capabilities=["tool.execute"])

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            shown = text_of(await visitor.get("/plugins/p"))
            assert "tool.execute medium risk the host does nothing with it" in shown

    run(main)


def test_the_history_of_a_plugin_is_on_its_page(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_nexo_plugin(tmp_path / "plugins", "shop", tools=["t"])

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "shop") as gateway, visitor_of(gateway) as visitor:
            await gateway.operator_plugins.operate(OPERATOR, "shop", "restart")
            await until(lambda: "shop" in gateway.host_events.histories)
            assert re.search(r"Starts and failures .* started", text_of(await visitor.get("/plugins/shop")))

    run(main)
