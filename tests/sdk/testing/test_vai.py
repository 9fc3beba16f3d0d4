"""What comes with every request of vai, and what a tool's result was before it was content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugbay.sdk import Plugin, ToolResult, testing
from plugbay.sdk.testing import CallFailed
from plugbay.sdk.testing.vai import block, tool_value


def test_a_call_has_ids_a_deadline_and_a_folder_that_goes() -> None:
    plugin = Plugin("acme/p", capabilities=["filesystem=scratch"])

    @plugin.tool()
    def look(ctx: Any) -> dict[str, Any]:
        """Look around."""
        (ctx.scratch / "x").write_text("x")
        return {"scratch": str(ctx.scratch), "org": ctx.org_id, "chain": ctx.chain_id, "left": ctx.remaining}

    with testing.host(plugin, "vai") as host:
        seen = host.call("look", context={"chain_id": "c1", "org_id": "o1"}, timeout=9)
        assert (seen["org"], seen["chain"]) == ("o1", "c1")
        assert 0 < seen["left"] <= 9 and not Path(seen["scratch"]).exists()
        assert host.call("look")["org"] == "default"


@pytest.mark.parametrize(
    ("returned", "schema"),
    [
        ({"a": 1}, None),
        ([1, 2], None),
        (7, {"type": "integer"}),
        ("text", None),
        (None, None),
        ({"result": 1}, {"type": "object"}),
    ],
)
def test_what_a_tool_returned_is_what_a_test_gets(returned: Any, schema: Any) -> None:
    plugin = Plugin("acme/p")
    plugin.tool("t", input_schema={"type": "object"}, output_schema=schema)(lambda: returned)
    with testing.host(plugin, "vai") as host:
        assert host.call("t") == returned


def test_a_result_that_says_it_is_an_error_is_one() -> None:
    plugin = Plugin("acme/p")
    plugin.tool("t", input_schema={"type": "object"})(lambda: ToolResult("no tea", is_error=True))
    with testing.host(plugin, "vai") as host, pytest.raises(CallFailed, match="no tea"):
        host.call("t")


def test_content_that_is_no_text_stays_content() -> None:
    picture = {"type": "image", "data": "…"}
    assert tool_value({"content": [picture]}, None) == [picture]


def test_a_message_is_a_block_of_its_kind() -> None:
    assert block({"role": "assistant", "content": "hi"}) == {
        "kind": "response",
        "content": [{"type": "text", "text": "hi"}],
    }
    assert block({"kind": "system", "content": []}) == {"kind": "system", "content": []}
