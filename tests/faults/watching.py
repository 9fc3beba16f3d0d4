"""A client that watches an invocation or a run live, over server-sent events."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx2

from tests.faults.checker import Gap, Watched

PATIENCE = 20.0
"""Seconds that a client watches at most."""

RECORDS = frozenset({"invocation", "run"})


def watch(client: httpx2.Client, gateway: str, path: str, work: str, total: int) -> Watched | None:
    """What a client sees until the end, or until it has none; None: nothing. `total` events come before success."""
    begun, until = None, time.monotonic() + PATIENCE
    seen: list[int | Gap] = []
    has_succeeded = False
    with suppress(httpx2.HTTPError), client.stream("GET", path) as stream:
        for name, data in _events(stream) if stream.status_code == 200 else ():
            now = time.monotonic()
            begun = now if begun is None and name in RECORDS else begun
            item = _item(name, data)
            seen += [] if item is None else [item]
            has_succeeded = name == "run.completed" or (name == "ended" and data["invocation"]["status"] == "succeeded")
            if has_succeeded or now > until:
                break
    if begun is None:
        return None  # it had ended before
    return Watched(work, gateway, begun, tuple(seen), total if has_succeeded else None)


def _item(name: str, data: dict[str, Any]) -> int | Gap | None:
    """The number of an event, or a gap."""
    if name == "event":
        number: int = data["data"]["n"]
        return number
    if name == "response.delta":
        return int(data["delta"])
    if name == "lost":
        return Gap(data["events"] if "events" in data else data["data"])
    return Gap(None) if name == "feed.lagged" else None


def _events(stream: httpx2.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for line in stream.iter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, json.loads(line[6:])
