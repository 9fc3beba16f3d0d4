"""What a plugin asks is a value, with defaults for what it need not say."""

from __future__ import annotations

from plugbay.model.host_ops import FetchUrl, ListStored, RecallMemory, WriteLog


def test_what_is_not_said_has_a_default() -> None:
    assert WriteLog("info", "hello") == WriteLog("info", "hello", None)
    assert FetchUrl("https://a.example/") == FetchUrl("https://a.example/", "GET", None, ())
    assert ListStored() == ListStored("", 1000)
    assert RecallMemory("agent", "words").limit == 10
