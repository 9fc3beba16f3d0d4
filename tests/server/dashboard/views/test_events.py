"""Events on pages, and the starts and failures of a plugin."""

from __future__ import annotations

from typing import Any

from plugbay.server.dashboard.views.events import MAX_PAYLOAD, SHORT, SHOWN_LIFECYCLE, event_row, lifecycle_rows
from plugbay.server.domain.operator_plugins import NumberedEvent


def event(payload: Any) -> NumberedEvent:
    data = {"timestamp": "2026-02-02T02:40:00Z", "source": "shop", "payload": payload}
    return NumberedEvent("start-1", "shop.sold", data)


def test_a_small_event_is_one_line_and_a_large_one_can_be_opened() -> None:
    small = event_row(event({"n": 1}))
    assert (small.time, small.topic, small.short, small.whole) == ("02:40:00", "shop.sold", '{"n":1}', "")
    large = event_row(event(["x" * 100] * 200))
    assert len(large.short) == SHORT + 1 and large.short.endswith("…")
    assert large.whole.startswith("[\n") and len(large.whole) < MAX_PAYLOAD + 50


def test_the_history_of_a_plugin_is_newest_first_and_short() -> None:
    def event(number: int, word: str) -> NumberedEvent:
        payload = {"plugin_id": "p", "exit": number}
        data = {"timestamp": f"2026-01-01T00:00:{number:02}Z", "payload": payload, "source": "x"}
        return NumberedEvent(str(number), f"plugin.lifecycle.p.{word}", data)

    rows = lifecycle_rows([event(number, "crashed" if number % 2 else "started") for number in range(30)])
    assert len(rows) == SHOWN_LIFECYCLE
    assert (rows[0].word, rows[0].tone, rows[0].facts) == ("crashed", "bad", "exit 29")
    assert (rows[1].word, rows[1].tone) == ("started", "calm") and lifecycle_rows([]) == ()
