"""Events of the host, numbered, so that nobody who was away for a moment misses one."""

from __future__ import annotations

import asyncio

from plugbay.host.host import Host
from plugbay.server.domain.host_events import KEPT, HostEvents
from tests.support.loops import Run
from tests.support.patience import until


def test_whoever_was_away_goes_on_after_the_last_event_it_saw(run: Run) -> None:
    async def main() -> None:
        async with Host([]) as host:
            events = HostEvents(host)
            running = asyncio.ensure_future(events.run())
            await until(lambda: host._backends.services.bus._made > 0)
            following = events.follow("shop.>")
            first = asyncio.ensure_future(anext(following))
            await asyncio.sleep(0)
            for number in range(3):
                host.publish("other.topic", {"n": number})
                host.publish("shop.sold", {"n": number})
            seen = await first
            assert (seen.topic, seen.data["payload"]) == ("shop.sold", {"n": 0})
            assert (await anext(following)).data["payload"] == {"n": 1}
            later = events.follow("shop.>", after=seen.id)
            assert [(await anext(later)).data["payload"]["n"] for _ in range(2)] == [1, 2]
            for lost in ("another-start-1", "nonsense"):
                whole = events.follow("shop.>", after=lost)
                assert (await anext(whole)).data["payload"] == {"n": 0}
            running.cancel()
            await asyncio.wait({running})

    run(main)


def test_only_the_last_events_are_kept(run: Run) -> None:
    async def main() -> None:
        async with Host([]) as host:
            events = HostEvents(host)
            running = asyncio.ensure_future(events.run())
            await until(lambda: host._backends.services.bus._made > 0)
            for number in range(KEPT + 10):
                host.publish("a.b", number)
            await until(lambda: events._count == KEPT + 10)
            whole = events.follow(after="too-old")
            assert (await anext(whole)).data["payload"] == 10
            running.cancel()
            await asyncio.wait({running})

    run(main)


def test_what_is_kept_can_be_read_at_once(run: Run) -> None:
    async def main() -> None:
        async with Host([]) as host:
            events = HostEvents(host)
            running = asyncio.ensure_future(events.run())
            await until(lambda: host._backends.services.bus._made > 0)
            assert events.recent() == []
            for topic in ("shop.sold", "other.topic", "shop.lost"):
                host.publish(topic, {})
            await until(lambda: events._count == 3)
            first, last = events.recent("shop.>")
            assert (first.topic, last.topic) == ("shop.sold", "shop.lost")
            assert events.recent("shop.>", first.id) == [last] and events.recent(after=last.id) == []
            assert len(events.recent(after="another-start-1")) == 3
            running.cancel()
            await asyncio.wait({running})

    run(main)


def test_the_last_of_each_plugins_life_is_known_and_nobody_else_can_tell_it(run: Run) -> None:
    async def main() -> None:
        async with Host([]) as host:
            events = HostEvents(host)
            running = asyncio.ensure_future(events.run())
            await until(lambda: host._backends.services.bus._made > 0)
            for word in ("started", "crashed"):
                host.publish(f"plugin.lifecycle.a.b.{word}", {"plugin_id": "a.b"}, source="plugin.supervisor")
            host.publish("plugin.lifecycle.a.b.started", {"plugin_id": "a.b"}, source="a.b")
            await until(lambda: events._count == 3)
            assert {id: event.topic for id, event in events.lifecycle.items()} == {
                "a.b": "plugin.lifecycle.a.b.crashed"
            }
            running.cancel()
            await asyncio.wait({running})

    run(main)
