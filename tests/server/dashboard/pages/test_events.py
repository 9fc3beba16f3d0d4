"""The page of the host's events."""

from __future__ import annotations

import re
from pathlib import Path

from plugbay.server.dashboard.live import EventsFeed
from tests.support.dashboards import text_of, visitor_of
from tests.support.gateways import gateway_at
from tests.support.loops import Run
from tests.support.patience import until


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


def test_events_are_newest_first_and_those_of_one_plugin_alone(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await until(lambda: "host events" in gateway.tasks.names)
            gateway.host.publish("shop.sold", {"n": "older"}, source="shop")
            gateway.host.publish("plugin.lifecycle.shop.started", {"n": "newer"}, source="x")
            gateway.host.publish("plugin.lifecycle.shopping.started", {"n": "other"}, source="y")
            await until(lambda: len(gateway.host_events.recent()) == 3)
            shown = text_of(await visitor.get("/events"))
            assert shown.index('"other"') < shown.index('"newer"') < shown.index('"older"')
            page = await visitor.get("/events?plugin=shop")
            assert '"newer"' in text_of(page) and '"older"' in text_of(page) and '"other"' not in text_of(page)
            assert 'data-live="/live/events?plugin=shop"' in page.text and '<option value="shop.sold">' in page.text
            feed = EventsFeed(gateway, ">", "", "shop")
            (event,) = feed.new_events()
            assert event.data["first"] and event.data["html"].index("newer") < event.data["html"].index("older")
            gateway.host.publish("shop.sold", {}, source="other")
            await until(lambda: len(gateway.host_events.recent()) == 4)
            assert feed.new_events() == []

    run(main)
