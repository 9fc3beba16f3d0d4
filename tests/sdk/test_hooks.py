"""The answers of hooks."""

from __future__ import annotations

from plugbay.sdk.hooks import block, inject, override, transform
from tests.support.requirements import requirement


@requirement("nexo:sdk-hook-block")
def test_a_block_is_said_in_both_ways_that_hosts_read() -> None:
    assert block("PII") == {"abort": True, "reason": "PII", "decision": "block"}
    assert block("PII", do_not_reply_again=True)["do_not_reply_again"] is True


def test_an_agent_can_be_told_something() -> None:
    assert inject("remember this") == {"inject": "remember this"}


def test_what_happens_can_be_changed() -> None:
    assert transform("[…]") == {"abort": False, "decision": "transform", "transformed_body": "[…]"}
    assert transform("x", reason="why")["reason"] == "why"
    assert override({"body": "x"}) == {"abort": False, "decision": "allow", "override": {"body": "x"}}
