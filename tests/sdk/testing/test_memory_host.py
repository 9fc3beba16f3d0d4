"""A plugin tested in memory: under every contract, with everything a host can ask of it."""

from __future__ import annotations

import _thread
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plugbay.model.operations import (
    InvokeTool,
    PerformAction,
    SearchVectors,
    SendOutbound,
    StartChannel,
    StopChannel,
    UpsertVectors,
)
from plugbay.model.spec import Export
from plugbay.sdk import Plugin, ToolResult, testing
from plugbay.sdk.screens import inputs
from plugbay.sdk.screens.canvas import Canvas
from plugbay.sdk.services.brokered import from_json
from plugbay.sdk.testing import CallFailed, MemoryHost
from plugbay.sdk.testing.memory_host import (
    Channel,
    CliOutput,
    Drawing,
    VectorStore,
    block,
    called_value,
    key_event,
    mouse_event,
    tool_value,
)
from tests.support.authored import everything

each_contract = pytest.mark.parametrize("contract", testing.contracts_of(everything()[0]))


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """No thread and no stream outlives a test."""
    before, streams = _thread._count(), (sys.stdout, sys.stderr)
    yield
    deadline = time.monotonic() + 5
    while _thread._count() > before and time.monotonic() < deadline:
        time.sleep(0.002)
    assert _thread._count() <= before
    assert (sys.stdout, sys.stderr) == streams


def failure_of(host: MemoryHost, name: str, input: Any = None, **more: Any) -> Any:
    with pytest.raises(CallFailed) as caught:
        host.call(name, input, **more)
    return caught.value.failure


def test_a_plugin_says_which_contracts_carry_it() -> None:
    plugin = Plugin("one.tool")
    assert testing.contracts_of(plugin) == []
    plugin.screen("s")(lambda canvas: None)
    assert testing.contracts_of(plugin) == ["ainb"]
    plugin.tool("t")(lambda: 1)
    assert testing.contracts_of(plugin) == ["rune", "nexo", "kaged", "ainb", "vai", "mcp"]


@each_contract
def test_a_tool_returns_the_same_under_every_contract(contract: str) -> None:
    plugin, _ = everything()
    with testing.host(plugin, contract) as host:
        assert host.call("put", {"what": "crème brûlée ☕", "amount": 2}) == {"what": "crème brûlée ☕", "amount": 2}
        assert host.call("put", {"what": "tea"}) == {"what": "tea", "amount": 1}
        assert host.call("count", {"items": ["a", "b"]}) == 2


@each_contract
def test_errors_are_those_that_a_host_reports(contract: str) -> None:
    plugin, _ = everything()
    with testing.host(plugin, contract) as host:
        own = failure_of(host, "put", {"what": "tea", "amount": -1})
        assert (own.code, own.origin) == ("invalid_input", "plugin")
        assert own.message.endswith("less than nothing")
        misfit = failure_of(host, "put", {"what": 1})
        assert misfit.code == "invalid_input" and "what" in misfit.message
        assert failure_of(host, "bug").code in ("plugin_error", "internal")
        assert any("RuntimeError: a bug" in line for line in host.stderr)
        assert "there is put, count" in failure_of(host, "nothing").message.replace("pantry_", "")
        assert failure_of(host, "put", {"what": {1, 2}}).message.startswith("the input is not JSON")


@each_contract
def test_a_call_that_takes_too_long_is_timed_out(contract: str) -> None:
    plugin, _ = everything()
    host = testing.host(plugin, contract)
    if contract in ("rune", "kaged", "nexo", "ainb"):
        plugin.tools["wait"].terms.timeout = 0.5  # or nobody tells it that its time is over
    with host:
        assert failure_of(host, "wait", timeout=0.05).code == "timeout"


@each_contract
def test_a_time_in_quotes_is_refused(contract: str) -> None:
    plugin, _ = everything()
    quoted: Any = "5"
    with testing.host(plugin, contract) as host, pytest.raises(TypeError, match="timeout is a number of seconds"):
        host.call("put", {"what": "tea"}, timeout=quoted)


def test_a_call_is_cancelled_and_the_handler_hears_of_it() -> None:
    plugin, _ = everything()
    with testing.host(plugin, "vai") as host:
        call = host.begin("wait")
        host.until(lambda: call.progress)
        call.cancel()
        with pytest.raises(CallFailed) as caught:
            call.result()
        assert caught.value.code == "cancelled"
        assert call.progress == [{"type": "progress", "message": "waiting"}]


def test_hooks_answer_as_they_do_a_host() -> None:
    plugin, seen = everything()
    with testing.host(plugin, "nexo") as host:
        assert host.fire("before_message", {"body": "tea"})["transformed_body"] == "tea please"
    with testing.host(plugin, "kaged") as host:
        assert host.fire("on_session_start", {}, context={"session_id": "s1"}) == {"inject": "welcome to s1"}
    with testing.host(plugin, "vai") as host:
        assert host.fire("run.completed", {"run": 7}) == {}
        with pytest.raises(CallFailed, match="no hook 'before_message'"):
            host.fire("before_message", {})
    assert {"type": "run.completed", "run": 7} in seen


@pytest.mark.parametrize("contract", ["kaged", "vai"])
def test_a_compactor_shortens_a_conversation(contract: str) -> None:
    plugin, _ = everything()
    messages = [{"role": "user", "content": str(number)} for number in range(3)]
    with testing.host(plugin, contract) as host:
        left = host.compact(messages)
        assert left is not None and len(left) == 1 and "2" in str(left[0])
        if contract == "kaged":
            assert host.compact(messages[:1]) is None
        else:
            with pytest.raises(CallFailed, match="leaves this conversation as it is"):
                host.compact(messages[:1])


def test_where_there_are_no_compactors_none_is_asked() -> None:
    plugin, _ = everything()
    with testing.host(plugin, "nexo") as host, pytest.raises(CallFailed, match="it has none under nexo"):
        host.compact([])


def test_a_harness_runs_goes_on_and_leaves_files() -> None:
    plugin, _ = everything()
    with testing.host(plugin, "vai") as host:
        first = host.run("tidy", "shelf")
        assert (first["summary"], first["checkpoint"]["data"]) == ({"text": "tidy"}, ["shelf"])
        assert host.artifacts == {"list.txt": b"tea"}
        assert host.run("tidy", "floor", checkpoint=["shelf"])["checkpoint"]["data"] == ["shelf", "floor"]


def test_without_its_grant_a_harness_has_no_scratch_folder() -> None:
    plugin, _ = everything()
    with testing.host(plugin, "vai", grants=["network"]) as host, pytest.raises(CallFailed):
        host.run("tidy", "shelf")


def test_models_channels_and_vectors_are_asked() -> None:
    plugin, seen = everything()
    with testing.host(plugin, "nexo") as host:
        assert host.chat("parrot", "m", [{"role": "user", "content": "tea"}])["content"]
        host.chat("parrot", "m", [{"role": "user", "content": "tea"}], stream=True)
        assert [chunk["delta"] for chunk in host.progress if chunk["type"] == "text_delta"] == ["tea", "!"]
        channel = host.channel("note")
        channel.start("kitchen")
        assert channel.send("tea?")["message_id"] == "message-1"
        with pytest.raises(CallFailed, match="only Ada is here"):
            channel.send("tea?", to="ben")
        channel.stop()
        shelf = host.vectors("shelf")
        record = {"id": "a", "content": "tea", "embedding": [1.0], "metadata": {}}
        assert (shelf.upsert("c", [record]), shelf.delete("c", ["a", "b"])) == (1, 2)
        assert shelf.search("c", [1.0])[0]["content"] == "c"
    assert [item for item in seen if item not in ("ready", "over")] == [("start", "kitchen"), "stop"]


def test_screens_are_drawn_and_keys_are_pressed() -> None:
    plugin, seen = everything()
    with testing.host(plugin, "ainb") as host:
        assert host.render("lamp", 10, 2).lines() == ["dark", ""]
        host.press("lamp", "space", "ctrl+a", "é", "f5", "shift+tab", "+")
        drawing = host.render(width=10, height=2)
        assert drawing.text == "lit ☕" and drawing.cells[0, 0]["modifier"] & 1
        host.mouse("lamp", "down", 3, 1, "left")
        done = host.run_cli("lamp", ["--please"])
        assert (done.stdout, done.stderr, done.exit_code) == (b"lit --please\n", b"", 0)
        host.act("off", {"now": True})
        assert host.invoke("lamp.ask", "tea") == b"TEA"
    assert [name for name in seen if isinstance(name, str)][1:-1] == ["space", "ctrl+a", "é", "f5", "shift+tab", "+"]
    assert ("down", "left", 3, 1) in seen and {"now": True} in seen


def test_events_reach_their_handlers_and_a_handler_that_fails_is_heard_of() -> None:
    plugin, seen = everything()
    with testing.host(plugin, "nexo") as host:
        host.deliver("plugin.outbound.note.kitchen", {"text": "tea is ready"})
        assert seen[-1] == {"text": "tea is ready"}
        with pytest.raises(CallFailed, match="a bad event"):
            host.deliver("plugin.outbound.note", "bad")
        with pytest.raises(ValueError, match=r"gets no event of 'somewhere.else' under nexo; its topics: plugin"):
            host.deliver("somewhere.else", 1)


def test_snapshots_reach_their_handlers() -> None:
    plugin, seen = everything()
    with testing.host(plugin, "ainb") as host:
        host.deliver("usage.today", {"tokens": 7})
        assert seen[-1] == {"tokens": 7} and host.snapshots["usage.today"] == b'{"tokens":7}'


def test_a_plugin_that_a_contract_would_not_take_is_refused_with_every_problem() -> None:
    from plugbay import ManifestInvalid

    plugin = Plugin("has.dots", version="not a version")
    plugin.tool("t")(lambda: 1)
    with pytest.raises(ManifestInvalid, match=r"the manifest of has\.dots under nexo"):
        testing.host(plugin, "nexo")
    with pytest.raises(ValueError, match="there is no contract 'mcp2'; there is rune"):
        testing.host(plugin, "mcp2")


@pytest.fixture
def plugin() -> Plugin:
    plugin = Plugin("my.shop")
    plugin.tool("price list", input_schema={"type": "object"})(lambda: [1])
    return plugin


@pytest.mark.parametrize("name", ["price list", "my_shop_price_list", "my_shop/my_shop_price_list"])
def test_a_tool_is_found_by_the_authors_name_and_by_the_contracts(plugin: Plugin, name: str) -> None:
    with testing.host(plugin, "nexo") as host:
        assert host.call(name) == [1]


def test_any_operation_can_be_asked(plugin: Plugin) -> None:
    with testing.host(plugin, "nexo") as host:
        assert host.ask(InvokeTool("my_shop_price_list", {})) == [1]


def test_a_host_that_is_not_used_as_a_context_manager_is_not_running(plugin: Plugin) -> None:
    host = testing.host(plugin, "nexo")
    with pytest.raises(CallFailed, match="the host is not running: with"):
        host.call("price list")


def test_what_the_contract_has_no_word_for_cannot_be_told(plugin: Plugin) -> None:
    with (
        testing.host(plugin, "rune") as host,
        pytest.raises(CallFailed, match="no process takes notifications under rune"),
    ):
        host.act("x")
    with testing.host(plugin, "nexo") as host, pytest.raises(Exception, match="PerformAction"):
        host.tell(PerformAction("x"))


def test_a_condition_that_never_comes_true_fails_the_test(plugin: Plugin) -> None:
    with testing.host(plugin, "nexo") as host:
        host.until(lambda: True)
        with pytest.raises(AssertionError, match=r"within 0\.01 s"):
            host.until(lambda: False, 0.01)


def test_a_begun_call_can_be_waited_for_while_others_are_made(plugin: Plugin) -> None:
    with testing.host(plugin, "nexo") as host:
        calls = [host.begin("price list") for _ in range(3)]
        assert [call.result() for call in calls] == [[1]] * 3


TEXT = {"type": "text", "text": "hi"}

WRAPPED = {"type": "object", "properties": {"result": {}}, "required": ["result"]}


@pytest.mark.parametrize(
    ("result", "schema", "value"),
    [
        ({"content": [TEXT, TEXT]}, None, "hihi"),
        ({"content": []}, None, None),
        ({"content": [{"type": "image"}]}, None, [{"type": "image"}]),
        ({"content": [TEXT], "structuredContent": {"x": 1}}, None, {"x": 1}),
        ({"content": [TEXT], "structuredContent": {"result": [1]}}, None, [1]),
        ({"content": [TEXT], "structuredContent": {"result": [1]}}, WRAPPED, [1]),
        ({"content": [TEXT], "structuredContent": {"result": 1}}, {"type": "object"}, {"result": 1}),
    ],
)
def test_a_result_is_read_back(result: Any, schema: Any, value: Any) -> None:
    assert called_value(result, Export("tool", "t", output_schema=schema)) == value


class Asked:
    """A host that says the same to everything."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.ops: list[Any] = []

    def ask(self, op: Any, timeout: float | None = None) -> Any:
        self.ops.append(op)
        return self.answer


def test_a_text_is_a_message_and_a_message_is_sent_as_it_is() -> None:
    host = Asked({"message_id": "1", "sent_at_unix": 2})
    channel = Channel(host, "note")
    channel.start()
    assert channel.send("tea?")["message_id"] == "1"
    channel.send({"kind": "custom", "x": 1})
    channel.stop()
    assert host.ops == [
        StartChannel("note", None),
        SendOutbound("note", {"kind": "text", "to": "ada", "body": "tea?"}),
        SendOutbound("note", {"kind": "custom", "x": 1}),
        StopChannel("note"),
    ]


def test_a_query_is_an_embedding_and_further_options() -> None:
    host = Asked({"matches": [1], "count": 2})
    store = VectorStore(host, "shelf")
    assert store.search("c", (0.5,), limit=3, filter={"a": 1}) == [1]
    assert store.upsert("c", [{"id": "a"}]) == store.delete("c", ["a"]) == 2
    assert host.ops[:2] == [
        SearchVectors("shelf", "c", {"embedding": [0.5], "limit": 3, "filter": {"a": 1}}),
        UpsertVectors("shelf", "c", [{"id": "a"}]),
    ]


@pytest.mark.parametrize(
    "name", ["a", "A", "é", "space", "+", "ctrl++", "ctrl+a", "alt+enter", "shift+tab", "f12", "page_up", "super+x"]
)
def test_a_key_is_heard_under_the_name_it_was_pressed_with(name: str) -> None:
    assert inputs.key(key_event(name)).name == inputs.canonical(name)


def test_a_key_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no key is called 'hyper'"):
        key_event("hyper")


def test_the_mouse_is_heard_as_it_was_used() -> None:
    assert inputs.mouse(mouse_event("down", 3, 1, "left")) == inputs.Mouse("down", "left", 3, 1, 0)
    assert inputs.mouse(mouse_event("moved", 0, 0)) == inputs.Mouse("moved", None, 0, 0, 0)


def test_a_picture_reads_as_lines_of_text() -> None:
    canvas = Canvas(6, 2)
    canvas.text(0, 0, "日本 x", bold=True)
    drawing = Drawing(from_json(canvas.picture().json))
    assert drawing.lines() == ["日本 x", ""]
    assert drawing.text == "日本 x"
    assert (drawing.width, drawing.height, drawing.redraw, drawing.captures_text) == (6, 2, False, False)


def test_output_is_bytes() -> None:
    assert CliOutput.read({"stdout": "/w==", "stderr": "", "exit_code": 3}) == CliOutput(b"\xff", b"", 3)


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
