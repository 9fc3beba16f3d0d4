"""Publishes a month of calls to language models, in chunks, for plugins that draw or count them.

Eager: it starts with its host, publishes its file of calls at once and after each change, and again for later
subscribers that call the action `usage.publish`. Another action, `usage.totals`, returns sums. Without a file it
publishes a month of an imaginary team, the same every time.
"""

import calendar
import json
import os
import random
import threading
import time
from collections import Counter
from typing import Any

from plugbay.sdk import Plugin, ToolError, split_chunks

TOPIC = "usage.calls"

VERSION = 1
"""Version of the published data. Readers of another version report it."""

PIECE_BYTES = 64 << 10
"""Small pieces, so that a screen has time for a key between two of them."""

SECONDS = 0.5
"""Between two looks at the file."""

SOME_CALLS, SOME_DAYS, SOME_TOKENS = 6_000, 17, 10_600
"""The imaginary team: its calls, the days it has worked for, and the tokens of a middling call."""

MODELS = {"opus": 0.28, "sonnet": 0.44, "haiku": 0.19, "gpt-5": 0.09}

plugin = Plugin(
    "usage-publisher",
    version="1.0.0",
    description="Publishes a month of calls to language models, in pieces.",
    capabilities=["event_bus=usage.*"],
    eager=True,
    idle_seconds=0,
)
plugin.publishes(TOPIC)
plugin.knob("file", type="path", label="Calls, one JSON object a line: at, model, tokens")
plugin.knob("budget", type="int_range", label="Tokens a month", default=100_000_000)


class Month:
    """The data of the month: its calls, and its token budget."""

    def __init__(self, calls: list[dict[str, Any]], budget: int) -> None:
        days = [call["at"][:10] for call in calls]
        self.name = max(days, default="1970-01-01")[:7]
        self.calls = [
            {"day": int(day[8:]), "model": call["model"], "tokens": call["tokens"]}
            for day, call in zip(days, calls, strict=True)
            if day[:7] == self.name
        ]
        year, month = map(int, self.name.split("-"))
        self.aggregates = {"month": self.name, "days": calendar.monthrange(year, month)[1], "budget": budget}

    def totals(self, by: str) -> dict[str, Any]:
        tokens: Counter[Any] = Counter()
        for call in self.calls:
            tokens[call[by]] += call["tokens"]
        rows = sorted(tokens.items()) if by == "day" else tokens.most_common()
        return {**self.aggregates, "used": tokens.total(), "rows": rows}


def read(path: str) -> list[dict[str, Any]]:
    """The calls of a file; a line that is none is passed over."""
    calls = []
    with open(os.path.expanduser(path), encoding="utf-8") as file:
        for line in file:
            try:
                said = json.loads(line)
                day = time.strptime(said["at"][:10], "%Y-%m-%d")
                at = time.strftime("%Y-%m-%d", day)
                calls.append({"at": at, "model": str(said["model"]), "tokens": max(int(said["tokens"]), 0)})
            except (ValueError, TypeError, KeyError):
                continue
    return calls


def imagined() -> list[dict[str, Any]]:
    """The calls of a team that rests on Sundays."""
    dice = random.Random(4)
    rest = [0.25 if calendar.weekday(2026, 11, day) == 6 else 1.0 for day in range(1, SOME_DAYS + 1)]
    days = sorted(dice.choices(range(1, SOME_DAYS + 1), rest, k=SOME_CALLS))
    models = dice.choices(list(MODELS), list(MODELS.values()), k=SOME_CALLS)
    return [
        {"at": f"2026-11-{day:02}", "model": model, "tokens": round(dice.expovariate(1 / SOME_TOKENS))}
        for day, model in zip(days, models, strict=True)
    ]


def month() -> Month:
    path, budget = plugin.config.get("file"), plugin.config.get("budget", 100_000_000)
    try:
        return Month(read(path) if path else imagined(), budget)
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}", code="invalid_input") from error


def publish(ctx: Any) -> int:
    """Publish all data in chunks; return the number of calls."""
    now = month()
    pieces = split_chunks(
        now.calls,
        now.aggregates,
        version=VERSION,
        published_ns=time.time_ns(),
        field="calls",
        chunk_bytes=PIECE_BYTES,
    )
    for piece in pieces:
        ctx.snapshots.publish(TOPIC, piece)
    return len(now.calls)


@plugin.on_ready
def start(ctx: Any) -> None:
    if plugin.config.get("file"):
        threading.Thread(target=watch, args=(plugin.config["file"],), daemon=True).start()
    else:
        ctx.log.debug("there is no file of calls: whoever asks gets a month that is imagined")


def watch(path: str) -> None:
    """Publish the file now, and whenever it has become another one."""
    seen: tuple[int, int] | None = None
    while True:
        try:
            status = os.stat(os.path.expanduser(path))
            if seen != (status.st_mtime_ns, status.st_size):
                seen = status.st_mtime_ns, status.st_size
                publish(plugin.host)
        except (OSError, ToolError) as error:
            plugin.host.log.warn(f"the file of calls cannot be read: {error}")
        time.sleep(SECONDS)


@plugin.action("usage.publish")
def publish_again(data: bytes, ctx: Any) -> dict[str, int]:
    """For later subscribers: the host keeps only the last chunk."""
    return {"calls": publish(ctx)}


@plugin.action("usage.totals")
def totals(data: bytes) -> dict[str, Any]:
    """Tokens by `model` or by `day`, whichever the data names."""
    by = data.decode(errors="replace") or "model"
    if by not in ("model", "day"):
        raise ToolError(f"tokens are counted by model or by day, not by {by!r}", code="invalid_input")
    return month().totals(by)


if __name__ == "__main__":
    plugin.run()
