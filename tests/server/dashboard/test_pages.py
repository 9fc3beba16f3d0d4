"""The pages of the host's plugins, and what is done from them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from plugbay.server.domain.principal import OPERATOR
from plugbay.store.pages import Page
from tests.support.dashboards import hosting_at, text_of, visitor_of
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
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
            assert "it requests tool.execute, and nobody has granted that yet" in shown
            assert "Not loaded 1 folder could not be used" in shown and "plugins/half" in shown
            assert 'data-live="/live/plugins"' in page.text and 'href="/plugins/a.good"' in page.text

    run(main)


def test_an_empty_server_says_what_to_do(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            shown = text_of(await visitor.get("/"))
            assert "No plugins yet" in shown and "plugbay new weather plugbay serve weather" in shown

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
                "counted: noise 1",
                "It asks for none.",
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
                ("restart", "p was started afresh."),
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
            assert "nobody has decided yet" in text_of(before) and "Restart" not in text_of(before)
            assert " checked" not in before.text, "nothing is granted by default"
            nothing = await visitor.post("/plugins/p:grant")
            assert nothing.status_code == 400 and "choose what it is about first" in text_of(nothing)
            done = await visitor.post("/plugins/p:grant", {"capability": "tool.execute"})
            assert done.status_code == 303
            granted = await visitor.get("/plugins/p")
            assert "p may use tool.execute from now on" in text_of(granted)
            assert re.search(r"✓ tool\.execute Revoke", text_of(granted))
            assert re.search(r"files\.read new", text_of(granted)), "what is not decided yet is marked"
            assert 'grants = ["tool.execute"]' in (tmp_path / "plugbay.toml").read_text()
            odd = await visitor.post("/plugins/p:grant", {"capability": "root"})
            assert odd.status_code == 422 and "does not ask for root" in text_of(odd)
            revoked = await visitor.post("/plugins/p:revoke", {"capability": "tool.execute"})
            assert revoked.status_code == 303 and "grants = []" in (tmp_path / "plugbay.toml").read_text()
            again = await visitor.post("/plugins/p:revoke", {"capability": "tool.execute"})
            assert again.status_code == 422

    run(main)


def test_what_is_done_is_in_the_audit_log(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await visitor.post("/plugins/p:stop")
            (entry,) = (await gateway.audit.page(OPERATOR, Page())).items
            assert (entry.action, entry.subject_id, entry.actor_kind) == ("plugin.stop", "p", "operator")

    run(main)


def test_what_could_not_be_done_is_said_on_the_page(sqlite_url: str, tmp_path: Path, run: Run) -> None:
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
            assert broken.status_code == 400 and "this is no JSON" in text_of(broken)
            assert "{&#34;order&#34;: </textarea>" in broken.text, "what was typed is still there"

    run(main)


def test_a_call_that_fails_says_why_and_what_to_do(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p", capabilities=["tool.execute"], tools=tool(required_capabilities=[]))
    write_plugin(tmp_path / "plugins", "q", script="echo 'no such table' >&2; exit 3\n", tools=tool())

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "q") as gateway, visitor_of(gateway) as visitor:
            denied = text_of(await visitor.post("/export?export=p/t", {"field:order": "1"}))
            assert "failed" in denied and "capability_not_allowed from the policy" in denied
            assert "plugbay grant p tool.execute" in denied
            crashed = text_of(await visitor.post("/export?export=q/t", {"field:order": "1"}))
            assert "crashed" in crashed and "What it wrote no such table" in crashed
            refused = text_of(await visitor.post("/export?export=q/t", {"field:order": "0"}))
            assert "invalid_input" in refused and "order" in refused

    run(main)


def test_what_was_filled_in_wrongly_is_shown_where_it_was(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p", tools=tool())

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            wrong = await visitor.post("/export?export=p/t", {"field:order": "many"})
            assert wrong.status_code == 400 and "this is no whole number" in text_of(wrong)
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
