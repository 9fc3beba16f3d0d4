"""`ainb`: frames of screens through the whole host, and the delay of a key while another plugin publishes a storm.

A frame takes the whole path of `Screens.render`: catalogue, policy, lease, ainb machine, link, deadline, every cell
checked, cleaned and clipped, a record written. The floor sends and parses the same JSON over a pipe and checks nothing.
There are no goals: no other contender draws. Imports stand inside the contenders, because each runs in its own process.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from bench.harness import (
    CHILDREN,
    ROOT,
    Column,
    Comparison,
    Entry,
    Finding,
    Options,
    Rounds,
    Sample,
    Stopwatch,
    apart,
    interleave,
    missing,
    percentile,
    serve,
    started,
)

if TYPE_CHECKING:
    from plugbay import Host

NAME = "ainb"
TITLE = "plugin/render through the whole host: full frames of 80x24 and 200x60, and keys during a storm"

SIZES = {"80": (80, 24), "200": (200, 60)}

STORM = "ainb_storm"
WARM_PIECES = 10
"""Pieces of the storm that have arrived before a key is timed."""

PAUSE = 0.003
"""Seconds between keys, so that they do not all meet the storm in the same place."""

READ_SIZE = 1 << 18


def run(options: Options) -> Comparison:
    """All contenders, round by round."""
    entries = [entry for name, size in SIZES.items() for entry in _rendering(name, size, options)]
    entries += _typing({"size": SIZES["80"], "calls": options.size(60, 24), "keys": True})
    rounds = interleave("bench.ainb_bench", entries, options)
    columns = [
        Column("p50_ms", "p50 ms", digits=2),
        Column("p99_ms", "p99 ms", digits=2),
        Column("per_s", "frames/s", digits=0),
        Column("cpu_ms", "host CPU ms/frame", digits=2),
        Column("storm_mb_s", "storm, MB/s", digits=0),
    ]
    findings = [finding for name in SIZES for finding in _rendered(rounds, name)]
    return Comparison(NAME, TITLE, [*findings, *_typed(rounds)], columns, rounds, missing(entries))


def _rendering(name: str, size: tuple[int, int], options: Options) -> list[Entry]:
    full, quick = (200, 60) if name == "80" else (40, 16)
    params = {"size": size, "calls": options.size(full, quick)}
    return [
        Entry(f"json{name}", f"{name}: raw pipe, JSON (floor J)", params),
        Entry(f"asyncio{name}", f"{name}: plugbay.Host, asyncio, fast child", params),
        Entry(f"uvloop{name}", f"{name}: plugbay.Host, uvloop, fast child", params, needs="uvloop"),
        Entry(f"sdk{name}", f"{name}: plugbay.Host, uvloop, SDK child", params, needs="uvloop"),
    ]


def _typing(params: dict[str, Any]) -> list[Entry]:
    storm = {**params, "storm": True}
    return [
        Entry("keys_json", "key: raw pipe, JSON (floor J)", params),
        Entry("keys_calm", "key: fast child", params, needs="uvloop"),
        Entry("keys_storm", "key: fast child, in a storm", storm, needs="uvloop"),
        Entry("keys_sdk_calm", "key: SDK child", params, needs="uvloop"),
        Entry("keys_sdk_storm", "key: SDK child, in a storm", storm, needs="uvloop"),
    ]


def _rendered(rounds: Rounds, name: str) -> list[Finding]:
    width, height = SIZES[name]
    return [
        Finding(f"{width}x{height}: {key}: frames/s / J", rounds.ratio(f"{key}{name}", f"json{name}", "per_s"))
        for key in ("uvloop", "asyncio", "sdk")
    ]


def _typed(rounds: Rounds) -> list[Finding]:
    ratio = rounds.ratio
    return [
        Finding("key to frame: fast child, calm: p50 / J", ratio("keys_calm", "keys_json", "p50_ms")),
        Finding("key to frame: fast child, storm: p50 / J", ratio("keys_storm", "keys_json", "p50_ms")),
        Finding("key to frame: fast child, storm: p50 / calm", ratio("keys_storm", "keys_calm", "p50_ms")),
        Finding("key to frame: SDK child, calm: p50 / J", ratio("keys_sdk_calm", "keys_json", "p50_ms")),
        Finding("key to frame: SDK child, storm: p50 / J", ratio("keys_sdk_storm", "keys_json", "p50_ms")),
        Finding("key to frame: SDK child, storm: p50 / calm", ratio("keys_sdk_storm", "keys_sdk_calm", "p50_ms")),
    ]


def _sample(times: list[float], watch: Stopwatch) -> Sample:
    """Milliseconds of each frame, and the host's own time per frame."""
    ordered = sorted(times)
    return {
        "p50_ms": percentile(ordered, 0.5),
        "p99_ms": percentile(ordered, 0.99),
        "per_s": 1e3 * len(times) / sum(times),
        "cpu_ms": watch.cpu_us(len(times)) / 1e3,
    }


# The floor.


def json_floor(params: dict[str, Any]) -> Sample:
    """Request the same bytes on a pipe and decode them into Python values, without checks."""
    import msgspec

    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with started([sys.executable, str(CHILDREN / "frame_child.py"), *apart()], env=env) as child:
        assert child.stdin is not None and child.stdout is not None
        writer, reader = child.stdin.fileno(), child.stdout.fileno()
        encode, decode = msgspec.json.encode, msgspec.json.decode
        key = encode({"size": params["size"]}) + b"\n" if params.get("keys") else b""

        def frame(number: int) -> float:
            began = time.perf_counter()
            os.write(writer, key + encode({"id": number, "size": params["size"]}) + b"\n")
            pieces = [os.read(reader, READ_SIZE)]
            while not pieces[-1].endswith(b"\n"):
                pieces.append(os.read(reader, READ_SIZE))
            assert decode(b"".join(pieces))["result"]["buffer"]["cells"]
            return (time.perf_counter() - began) * 1e3

        for number in range(params["calls"] // 10 + 1):
            frame(number)
        watch = Stopwatch()
        return _sample([frame(number) for number in range(params["calls"])], watch)


# The host.


def on_asyncio(params: dict[str, Any]) -> Sample:
    return asyncio.run(_through_host("ainb_fast", params))


def fast_child(params: dict[str, Any]) -> Sample:
    return _with_uvloop("ainb_fast", params)


def sdk_child(params: dict[str, Any]) -> Sample:
    return _with_uvloop("ainb_sdk", params)


def _with_uvloop(child: str, params: dict[str, Any]) -> Sample:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_through_host(child, params))


async def _through_host(child: str, params: dict[str, Any]) -> Sample:
    storm = params.get("storm", False)
    arrived: list[int] = []
    async with host_of(child, *([STORM] if storm else [])) as host:
        host.snapshots.listen("bench.storm", lambda _, snapshot: arrived.append(len(snapshot.data)))
        frame = _key_to_frame if params.get("keys") else _frame
        for number in range(params["calls"] // 10 + 1):
            await frame(host, child, params["size"], number)
        if storm:
            await _raging(arrived)
        arrived.clear()
        began, watch, times = time.perf_counter(), Stopwatch(), []
        for number in range(params["calls"] // 10 + 1, params["calls"] // 10 + 1 + params["calls"]):
            times.append(await frame(host, child, params["size"], number))
            if storm:
                await asyncio.sleep(PAUSE)
        sample = _sample(times, watch)
        if storm:
            sample["storm_mb_s"] = sum(arrived) / 1e6 / (time.perf_counter() - began)
        return sample


async def _raging(arrived: list[int]) -> None:
    """Until the storm is there; a measurement that waits for ever is ended from outside."""
    for _ in range(10_000):
        if len(arrived) >= WARM_PIECES:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("there is no storm")


async def _frame(host: Host, child: str, size: tuple[int, int], number: int) -> float:
    began = time.perf_counter()
    frame = await host.screens.render(f"{child}/screen", *size)
    took = (time.perf_counter() - began) * 1e3
    assert len(frame.cells) == size[0] * size[1]
    return took


async def _key_to_frame(host: Host, child: str, size: tuple[int, int], number: int) -> float:
    """From the key until there is a picture that shows it."""
    from bench.children.full_frame import MARKS
    from plugbay.host.screens.keys import parse_key

    key, name = parse_key("down"), f"{child}/screen"
    if number == 0:
        await host.screens.render(name, *size)  # a key is lost while the plugin does not run
    began = time.perf_counter()
    assert host.screens.press(name, key)
    frame = await host.screens.render(name, *size)
    while frame.cells[0, 0].symbol != MARKS[(number + 1) % len(MARKS)]:
        frame = await host.screens.render(name, *size)
    return (time.perf_counter() - began) * 1e3


def host_of(*children: str) -> Host:
    """A host of these ainb children, on a core of its own."""
    from plugbay import Host
    from plugbay.host.config.config import Config, PluginConfig
    from plugbay.host.discovery.folders import discover

    cores = apart()
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)))
    env = {"PATH": path, "PYTHONPATH": str(ROOT), **({"BENCH_CORE": cores[0]} if cores else {})}
    config = Config(plugins={child: PluginConfig(env=env) for child in children})
    return Host(discover([CHILDREN / child for child in children]), config, grant_all=True)


if __name__ == "__main__":
    serve(
        {
            **dict.fromkeys((*(f"json{name}" for name in SIZES), "keys_json"), json_floor),
            **dict.fromkeys((f"asyncio{name}" for name in SIZES), on_asyncio),
            **dict.fromkeys((*(f"uvloop{name}" for name in SIZES), "keys_calm", "keys_storm"), fast_child),
            **dict.fromkeys((*(f"sdk{name}" for name in SIZES), "keys_sdk_calm", "keys_sdk_storm"), sdk_child),
        }
    )
