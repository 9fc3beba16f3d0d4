"""`large`: echoes of 64 KiB and 1 MiB through the whole host, beside the raw JSON pipe.

Both have the same kind of child, pipes of the same size, and Python values in and out. The floor reads as a careful
author would: pieces are joined once, when the line is complete.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

import msgspec

from bench.floors import Answer, Call, write
from bench.harness import (
    CHILDREN,
    Column,
    Comparison,
    Entry,
    Finding,
    Options,
    Sample,
    apart,
    interleave,
    missing,
    percentile,
    serve,
    started,
)
from bench.nexo_bench import host_of

NAME = "large"
TITLE = "Large messages through the whole host: echoes of 64 KiB and 1 MiB"

SIZES = {"64k": 64 << 10, "1m": (1 << 20) - 4096}
"""Characters of text; a line of nexo has at most 1 MiB."""
GOALS = {"64k": 1.7, "1m": 1.5}
READ_SIZE = 65_536
PATIENCE = 60.0


def run(options: Options) -> Comparison:
    """Both contenders, round by round."""
    params = {"64k": options.size(600, 200), "1m": options.size(100, 30)}
    entries = [
        Entry("json", "raw pipe, JSON (floor J)", params),
        Entry("uvloop", "plugbay.Host, uvloop, fast child", params, needs="uvloop"),
    ]
    rounds = interleave("bench.large_bench", entries, options)
    findings = [
        Finding(f"{size}: p50 / J", rounds.ratio("uvloop", "json", f"p50_{size}_us"), at_most=goal)
        for size, goal in GOALS.items()
    ]
    columns = [Column(f"p50_{size}_us", f"{size}: p50 us") for size in SIZES]
    return Comparison(NAME, TITLE, findings, columns, rounds, missing(entries))


def json_floor(params: dict[str, Any]) -> Sample:
    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(Answer).decode
    with started([sys.executable, str(CHILDREN / "fast_child.py"), *apart()]) as child:
        assert child.stdin is not None and child.stdout is not None
        writer, reader = child.stdin.fileno(), child.stdout.fileno()
        write(writer, b'{"jsonrpc":"2.0","method":"hello","params":{}}\n')
        assert b"hello" in os.read(reader, READ_SIZE)

        def echo(text: str) -> None:
            # A megabyte fits into no pipe, and this child reads a whole line before it answers.
            write(writer, encode(Call(1, {"tool": "echo", "input": {"text": text}})) + b"\n")
            pieces: list[bytes] = []
            while not pieces or not pieces[-1].endswith(b"\n"):
                pieces.append(os.read(reader, READ_SIZE))
            assert len(decode(b"".join(pieces)).result["text"]) == len(text)

        sample = {}
        for size, length in SIZES.items():
            text, times = "x" * length, []
            for _ in range(params[size]):
                began = time.perf_counter_ns()
                echo(text)
                times.append((time.perf_counter_ns() - began) / 1e3)
            sample[f"p50_{size}_us"] = percentile(sorted(times), 0.5)
        return sample


def through_host(params: dict[str, Any]) -> Sample:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_through_host(params))


async def _through_host(params: dict[str, Any]) -> Sample:
    async with host_of("fast") as host:
        sample = {}
        for size, length in SIZES.items():
            text, times = "x" * length, []
            for _ in range(params[size]):
                began = time.perf_counter_ns()
                answer = await host.call("bench_fast_echo", {"text": text}, timeout=PATIENCE)
                assert len(answer["text"]) == length
                times.append((time.perf_counter_ns() - began) / 1e3)
            sample[f"p50_{size}_us"] = percentile(sorted(times), 0.5)
        return sample


if __name__ == "__main__":
    serve({"json": json_floor, "uvloop": through_host})
