"""The page of the host's events."""

from __future__ import annotations

import re
from pathlib import Path

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
