"""The wire of a plugin on a page, and its recordings."""

from __future__ import annotations

import re
from pathlib import Path

from plugbay.server.dashboard.live import MAX_APPENDED, WireFeed
from tests.support.dashboards import hosting_at, text_of, visitor_of
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import until


def test_frames_appear_while_the_page_is_open(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_nexo_plugin(tmp_path / "plugins", "shop", tools=["t"])

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "shop") as gateway, visitor_of(gateway) as visitor:
            page = await visitor.get("/wire?plugin=shop")
            assert 'data-live="/live/wire?plugin=shop"' in page.text and "None yet." in text_of(page)
            feed = WireFeed(gateway, "shop")
            assert feed.new_events() == [] and await feed.regions() == {}
            async with feed.listening():
                assert (await gateway.host.attempt("shop/shop_t", {"<b>": 1})).failure is None
                html = ""

                def answered() -> bool:
                    nonlocal html
                    html += "".join(event.data["html"] for event in feed.new_events())
                    return "ok tool.invoke" in html

                await until(answered)
                assert "&lt;b&gt;" in html and "<b>" not in html
                for _ in range(MAX_APPENDED):
                    await gateway.host.attempt("shop/shop_t", {})
                await until(lambda: len(feed._stream._waiting) >= 2 * MAX_APPENDED)  # type: ignore[union-attr]
                (event,) = feed.new_events()
                assert event.data["html"].count("<li") == MAX_APPENDED + 1 and "not shown" in event.data["html"]
            assert gateway.host.taps._listeners["shop"] == [], "a closed page taps nothing"
            for path in ("/wire?plugin=nobody", "/live/wire?plugin=nobody"):
                assert (await visitor.get(path)).status_code == 404

    run(main)


def test_a_recording_is_begun_ended_read_and_removed(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_nexo_plugin(tmp_path / "plugins", "shop", tools=["t"])

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "shop") as gateway, visitor_of(gateway) as visitor:
            wire = "/wire?plugin=shop"
            assert (await visitor.post(wire, {"operation": "end"})).status_code == 409
            assert (await visitor.post(wire, {"operation": "dance"})).status_code == 400
            assert (await visitor.post(wire, {"operation": "begin"})).status_code == 303
            assert (await visitor.post(wire, {"operation": "begin"})).status_code == 409
            assert "shop is being recorded already" not in text_of(await visitor.get(wire))
            assert (await gateway.host.attempt("shop/shop_t", {"tea": "<i>"})).failure is None
            name = "shop.jsonl"
            busy = await visitor.post(wire, {"operation": "remove", "name": name})
            assert busy.status_code == 409 and "end the recording first" in text_of(busy)
            assert (await visitor.post(wire, {"operation": "end"})).status_code == 303
            page = await visitor.get(wire)
            assert "The recording has ended." in text_of(page) and f'href="/recordings/{name}"' in page.text
            frames = await visitor.get(f"/recordings/{name}")
            assert re.search(r"host → tool\.invoke .* ← plugin ok tool\.invoke", text_of(frames))
            assert "&lt;i&gt;" in frames.text and "<i>" not in frames.text
            assert '<a href="/plugins" aria-current="page">' in frames.text
            for missing in ("..%2foperator.token", "nobody.jsonl"):
                assert (await visitor.get(f"/recordings/{missing}")).status_code == 404
            escape = await visitor.post(wire, {"operation": "remove", "name": "../operator.token"})
            assert escape.status_code == 404 and (tmp_path / "operator.token").exists()
            assert (await visitor.post(wire, {"operation": "remove", "name": name})).status_code == 303
            assert not (tmp_path / "recordings" / name).exists()

    run(main)
