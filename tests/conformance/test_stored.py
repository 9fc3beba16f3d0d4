"""The small storage that stands by while a kaged plugin is tried."""

from __future__ import annotations

from typing import Any

from plugbay.conformance.stored import Stored
from tests.support.requirements import requirement


def asked(stored: Stored, name: str, **params: Any) -> Any:
    return stored([f"kaged.storage.{name}", params])


@requirement("kaged:kit-host-stands-by")
def test_what_is_set_is_found_listed_and_deleted() -> None:
    stored = Stored()
    assert asked(stored, "get", key="a") == {"found": False, "value": None}
    assert asked(stored, "set", key="a", value=[1]) == {"ok": True}
    assert asked(stored, "set", key="b", value=None) == {"ok": True}
    assert asked(stored, "get", key="a") == {"found": True, "value": [1]}
    assert asked(stored, "get", key="b") == {"found": True, "value": None}
    assert asked(stored, "list") == {"keys": ["a", "b"]}
    assert asked(stored, "list", prefix="b") == {"keys": ["b"]}
    assert asked(stored, "list", limit=1) == {"keys": ["a"]}
    assert asked(stored, "delete", key="b") == {"deleted": True}
    assert asked(stored, "delete", key="b") == {"deleted": False}


def test_each_conversation_begins_with_an_empty_one() -> None:
    asked(Stored(), "set", key="a", value=1)
    assert asked(Stored(), "list") == {"keys": []}
