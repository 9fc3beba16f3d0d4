"""`bus`: events per second, in one process to one and to a hundred subscribers, and through a plugin and back.

There are no goals: no other contender has a bus. The figure of a plugin counts events that went to the child and came
back as its own publications.
"""

from __future__ import annotations

import asyncio
from typing import Any

from bench.harness import PAYLOAD, Column, Comparison, Entry, Options, Sample, Stopwatch, interleave, missing, serve
from bench.nexo_bench import host_of

NAME = "bus"
TITLE = "Events through the bus: 100-byte payload"
AT_ONCE = 32
"""Events under way to the plugin at a time: half of its queue, so that none is dropped."""


def run(options: Options) -> Comparison:
    """Every way an event can go."""
    entries = [
        Entry("one", "to one subscriber", {"events": options.size(200_000, 50_000), "listeners": 1}),
        Entry("hundred", "to 100 subscribers", {"events": options.size(10_000, 3_000), "listeners": 100}),
        Entry("topics", "1,000 subscribers of other topics, one of this", {"events": options.size(200_000, 50_000)}),
        Entry("plugin", "to a plugin and back, uvloop", {"events": options.size(20_000, 6_400)}, needs="uvloop"),
    ]
    rounds = interleave("bench.bus_bench", entries, options)
    columns = [Column("events_per_s", "events/s", digits=0), Column("cpu_us", "host CPU us/event", digits=2)]
    return Comparison(NAME, TITLE, [], columns, rounds, missing(entries))


def to_listeners(params: dict[str, Any]) -> Sample:
    """Publish to listeners in this process; each counts."""
    from plugbay.host.inbound.handler import Services

    services, heard = Services(), [0]

    def listen(event: object) -> None:
        heard[0] += 1

    for number in range(params.get("others", 0)):
        services.bus.listen([f"plugin.inbound.other{number}.>"], listen)
    for _ in range(params.get("listeners", 1)):
        services.bus.listen(["plugin.inbound.bench.>"], listen)
    events = params["events"]
    watch = Stopwatch()
    for _ in range(events):
        services.publish_event("plugin.inbound.bench.a", "bench", {"text": PAYLOAD})
    assert heard[0] == events * params.get("listeners", 1)
    return {"events_per_s": watch.per_second(events), "cpu_us": watch.cpu_us(events)}


def among_topics(params: dict[str, Any]) -> Sample:
    return to_listeners({**params, "others": 1_000})


def through_plugin(params: dict[str, Any]) -> Sample:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_through_plugin(params["events"]))


async def _through_plugin(events: int) -> Sample:
    async with host_of("fast") as host:
        await host.settled()
        stream = host.subscribe("plugin.inbound.bench_fast")
        watch = Stopwatch()
        for _ in range(events // AT_ONCE):
            for _ in range(AT_ONCE):
                host.publish("plugin.outbound.bench_fast", {"text": PAYLOAD})
            for _ in range(AT_ONCE):
                event = await anext(stream)
        assert event.payload == {"text": PAYLOAD}
        return {"events_per_s": watch.per_second(events), "cpu_us": watch.cpu_us(events)}


if __name__ == "__main__":
    serve({"one": to_listeners, "hundred": to_listeners, "topics": among_topics, "plugin": through_plugin})
