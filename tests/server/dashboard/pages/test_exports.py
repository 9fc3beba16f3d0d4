"""The page that calls an export."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from plugbay.server.dashboard.pages import exports
from plugbay.store.pages import Page
from tests.server.dashboard.test_tries import WAITS
from tests.support.dashboards import hosting_at, text_of, visitor_of
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.plugins import ECHO_SH, write_plugin

SCHEMA = {
    "type": "object",
    "required": ["order"],
    "properties": {
        "order": {"type": "integer", "minimum": 1, "description": "On the receipt."},
        "colour": {"enum": ["red", "blue"], "default": "blue"},
        "gift": {"type": "boolean"},
    },
}


def tool(**more: Any) -> list[dict[str, Any]]:
    return [{"name": "t", "description": "Says it again.", "input_schema": SCHEMA, **more}]


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


def test_a_refused_call_offers_the_grant_and_leads_back(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p", capabilities=["tool.execute"])

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway, visitor_of(gateway) as visitor:
            refused = await visitor.post("/export?export=p/t&as=json", {"json": "{}"})
            assert "The call needs a grant: tool.execute medium risk" in text_of(refused)
            await gateway.calls.flush()
            (call,) = (await gateway.calls.page(Page())).items
            assert "The call needs a grant: tool.execute" in text_of(await visitor.get(f"/calls/{call.id}"))
            done = await visitor.post("/plugins/p:grant", {"capability": "tool.execute", "export": "p/t"})
            assert (done.status_code, done.headers["location"]) == (303, "/export?export=p%2Ft")
            assert "needs a grant" not in text_of(await visitor.get(f"/calls/{call.id}"))
            elsewhere = await visitor.post("/plugins/p:stop", {"export": "//evil.example"})
            assert elsewhere.headers["location"] == "/plugins/p"

    run(main)


def test_a_form_and_json_are_in_step(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p", tools=tool())

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            form = {"field:order": "7", "field:colour": '"red"', "switch": "json"}
            as_json = await visitor.post("/export?export=p/t", form)
            assert "{\n  &#34;order&#34;: 7,\n  &#34;colour&#34;: &#34;red&#34;\n}</textarea>" in as_json.text
            back = await visitor.post("/export?export=p/t&as=json", {"json": '{"order": 9}', "switch": "form"})
            assert back.status_code == 200 and 'value="9"' in back.text
            assert '<option value="">leave out</option>' in back.text and "selected" not in back.text
            odd = await visitor.post("/export?export=p/t&as=json", {"json": '{"tea": 1}', "switch": "form"})
            assert odd.status_code == 400 and "cannot show all of this JSON" in text_of(odd)
            assert "{&#34;tea&#34;: 1}</textarea>" in odd.text
            wrong = await visitor.post("/export?export=p/t", {"field:order": "x", "switch": "json"})
            assert wrong.status_code == 400 and "enter a whole number" in text_of(wrong)
            assert gateway.meters.counters.get("calls", {}) == {}, "nothing was called"

    run(main)


def test_a_long_call_has_a_page_that_follows_and_cancels_it(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "QUICK_SECONDS", 0.05)
    write_plugin(tmp_path / "plugins", "p", script=WAITS + ECHO_SH)

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway, visitor_of(gateway) as visitor:
            begun = await visitor.post(
                "/export?export=p/t&as=json", {"json": '{"a": 1}', "timeout": "60", "keep": "yes"}
            )
            path = begun.headers["location"]
            assert begun.status_code == 303 and path.startswith("/tries/")
            page = await visitor.get(path)
            assert "running started" in text_of(page) and "Cancel" in text_of(page)
            assert f'data-live="/live{path}"' in page.text and '<meta http-equiv="refresh"' in page.text
            async with visitor_of(gateway) as other:
                assert (await other.get(path)).status_code == 404, "of another session"
                assert (await other.post(f"{path}:cancel")).status_code == 404
            cancelled = await visitor.post(f"{path}:cancel")
            assert cancelled.headers["location"] == path
            made = visitor.dashboard.tries.get(visitor.session, path.rpartition("/")[2])
            await until(lambda: not made.is_running)
            after = await visitor.get(path)
            assert "The call was cancelled." in text_of(after) and "http-equiv" not in after.text
            (again,) = re.findall(r'href="(/export\?export=p%2Ft&amp;again=[^"]+)"', after.text)
            filled = await visitor.get(unescape(again))
            assert "{\n  &#34;a&#34;: 1\n}</textarea>" in filled.text
            assert "Earlier calls of this session cancelled" in text_of(filled)
            assert (await visitor.get("/tries/none")).status_code == 404

    run(main)
