"""A resident plugin process: many things at once, and every way of leaving.

Whatever its handlers do holds wherever they run, also where it was thought that they take no time.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.sdk.processes import THOUGHT_QUICK, PluginProcess, gate, open_gate, running
from tests.support.requirements import requirement

PLUGIN = """
plugin = Plugin("p", "1.0")

def hold():
    open("gate").read()

@plugin.tool()
def echo(input):
    return input

@plugin.tool()
async def echo_later(input):
    return input

@plugin.tool()
def held():
    hold()
    return "held"

@plugin.tool()
def held_at(name):
    open(name).read()

@plugin.tool()
async def held_later():
    import asyncio
    await asyncio.to_thread(hold)
    return "held"

@plugin.tool()
def recalls(ctx):
    return ctx.memory.recall("a", "q")

@plugin.tool()
async def recalls_later(ctx):
    return await ctx.memory.recall("a", "q")

@plugin.tool()
def recalls_twice(ctx):
    try:
        ctx.memory.recall("a", "q")
    except ServiceError as first:
        try:
            ctx.memory.recall("a", "q")
        except ServiceError as second:
            return [first.code, second.code]

@plugin.tool()
def raises_exit():
    sys.exit(3)

@plugin.on_event()
def deliver(event, ctx):
    if event.payload == "held":
        hold()
    if event.payload == "raise":
        raise ToolError("not this one")
    ctx.events.publish("plugin.inbound.p", event.payload)
"""


@pytest.fixture(params=["", THOUGHT_QUICK], ids=["unknown", "thought quick"])
def source(request: pytest.FixtureRequest) -> str:
    return f"{PLUGIN}\n{request.param}"


def shutdown(plugin: PluginProcess) -> int:
    return plugin.request("shutdown", reason="test")


def tool(plugin: PluginProcess, name: str) -> int:
    return plugin.request("tool.invoke", tool_name=f"p_{name}")


BOTH = pytest.mark.parametrize("way", ["", "_later"], ids=["plain", "async"])


@BOTH
@requirement("nexo:sdk-concurrent")
def test_a_handler_that_waits_blocks_no_other_call(tmp_path: Path, source: str, way: str) -> None:
    with running(tmp_path, source) as plugin:
        waiting = [tool(plugin, f"recalls{way}") for _ in range(40 if way else 31)]
        questions = [plugin.read() for _ in waiting]
        assert plugin.tool("echo", 1) == 1
        assert plugin.tool("echo_later", 2) == 2
        for question in reversed(questions):
            assert question["method"] == "memory.recall"
            plugin.send(id=question["id"], result={"entries": []})
        answers = [plugin.read() for _ in waiting]
        assert {answer["id"] for answer in answers} == set(waiting)
        assert all(answer["result"] == [] for answer in answers)


WHERE = """
from time import monotonic

plugin = Plugin("p", "1.0")

def names(frame):
    while frame is not None:
        yield frame.f_code.co_name
        frame = frame.f_back

@plugin.tool()
def quick():
    return "_read_loop" in names(sys._getframe())

@plugin.tool()
def slow():
    until = monotonic() + 0.001
    while monotonic() < until:
        pass
    return "_read_loop" in names(sys._getframe())

@plugin.tool()
def held():
    open("gate").read()
    return "_read_loop" in names(sys._getframe())

@plugin.tool()
def text(size: int):
    return "x" * size
"""


def test_a_quick_tool_soon_runs_on_the_reading_thread_and_a_slow_one_never(tmp_path: Path) -> None:
    with running(tmp_path, WHERE) as plugin:
        assert plugin.tool("quick") is False  # nobody knows how long it takes
        while not plugin.tool("quick"):
            pass
        assert [plugin.tool("slow") for _ in range(20)] == [False] * 20


def test_a_quick_tool_that_hangs_once_blocks_no_other_call(tmp_path: Path) -> None:
    path = gate(tmp_path)
    with running(tmp_path, f"{WHERE}\n{THOUGHT_QUICK}") as plugin:
        held_by_reader = False
        while not held_by_reader:  # on a busy machine the reader may be taken for stuck already: then a worker is held
            call = tool(plugin, "held")
            quick_by_reader = plugin.tool("quick")
            open_gate(path)
            answer = plugin.read()
            assert answer["id"] == call
            held_by_reader = answer["result"]
        assert not quick_by_reader  # while the reader is stuck, nothing counts as quick
        while not plugin.tool("quick"):
            pass


NO_THREADS = """
import plugbay.sdk.runtime.resident as r, plugbay.sdk.io.stdio as s
def no_thread(*_):
    raise RuntimeError("can't start new thread")
r.start_new_thread = s.start_new_thread = no_thread
"""
"""What a plugin would do on a thread of its own it has to do otherwise."""


def test_what_was_asked_together_is_answered_together(tmp_path: Path) -> None:
    with running(tmp_path, f"{WHERE}\n{THOUGHT_QUICK}") as plugin:
        plugin.tool("quick")
        params = {"tool_name": "p_text", "args": {"size": 3}}
        calls = [{"jsonrpc": "2.0", "id": id, "method": "tool.invoke", "params": params} for id in range(2, 10)]
        plugin.write(b"".join(json.dumps(call).encode() + b"\n" for call in calls))
        assert plugin.process.stdout is not None
        answers = os.read(plugin.process.stdout.fileno(), 65_536).splitlines()
        assert [json.loads(answer)["id"] for answer in answers] == list(range(2, 10))


def together(*frames: Mapping[str, object]) -> bytes:
    """What is read at once."""
    return b"".join(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n" for frame in frames)


def invoking(id: int, tool: str) -> dict[str, object]:
    return {"id": id, "method": "tool.invoke", "params": {"tool_name": f"p_{tool}"}}


@pytest.mark.parametrize("threads", ["", NO_THREADS], ids=["", "no more threads"])
def test_no_answer_waits_for_the_tool_that_is_done_next(tmp_path: Path, threads: str) -> None:
    path = gate(tmp_path)
    with running(tmp_path, f"{WHERE}\n{THOUGHT_QUICK}\n{threads}") as plugin:
        plugin.write(together(invoking(7, "quick"), invoking(8, "held")))
        assert plugin.read() == {"jsonrpc": "2.0", "id": 7, "result": True}
        open_gate(path)
        assert plugin.read() == {"jsonrpc": "2.0", "id": 8, "result": True}


ANOTHER_LEADS = """
from plugbay.sdk.runtime.reader import Reader
run_inline = Reader.run_inline

def aside_while_another_one_leads(self, job, *arguments):
    kept = run_inline(self, job, *arguments)
    if kept and job.__name__ == "flush":
        resident = self._read_loop.__self__
        resident._receive(resident._connection.read())
    return kept

Reader.run_inline = aside_while_another_one_leads
"""
"""The sending thread takes the read lock back, with events that another thread has read meanwhile."""


def test_what_another_thread_read_while_one_was_sending_is_seen_to(tmp_path: Path) -> None:
    told = {"method": "broker.event", "params": {"topic": "t", "event": {"topic": "t", "source": "host"}}}
    with running(tmp_path, f"{WHERE}\n{THOUGHT_QUICK}\n{ANOTHER_LEADS}") as plugin:
        plugin.write(together(invoking(7, "quick"), told))
        assert plugin.read()["id"] == 7
        plugin.write(together(invoking(8, "quick")))
        assert plugin.read()["id"] == 8


def test_a_host_that_does_not_read_an_answer_is_still_heard(tmp_path: Path) -> None:
    path = gate(tmp_path)
    with running(tmp_path, f"{WHERE}\n{THOUGHT_QUICK}") as plugin:
        large = plugin.request("tool.invoke", tool_name="p_text", args={"size": 1_000_000})
        held = tool(plugin, "held")
        open_gate(path)  # somebody has read that, and does it
        assert plugin.read()["id"] == large
        assert plugin.read()["id"] == held


@requirement("nexo:sdk-overload")
def test_a_host_that_asks_too_much_at_once_is_told_and_events_are_dropped(tmp_path: Path) -> None:
    gates = [gate(tmp_path, name) for name in ("first", "second", "third")]  # two readers of one would share its end
    small = "import plugbay.sdk.runtime.executor as w; w.Workers.__init__.__defaults__ = (2, 1)"
    with running(tmp_path, f"{PLUGIN}\n{small}") as plugin:
        held = [plugin.request("tool.invoke", tool_name="p_held_at", args={"name": path.name}) for path in gates]
        refused = tool(plugin, "held")
        answer = plugin.read()
        assert (answer["id"], answer["error"]["code"]) == (refused, -33404)
        assert answer["error"]["data"] == {"retry_after_ms": 1000}
        plugin.event("a.b", 1)
        assert plugin.stderr_line() == "p: dropped an event on a.b: too many handlers are busy\n"
        for id, path in zip(held, gates, strict=True):  # two run, and the third follows
            open_gate(path)
            assert plugin.read()["id"] == id


def test_events_reach_their_handlers_and_a_failing_one_is_told_on_stderr(tmp_path: Path) -> None:
    with running(tmp_path, PLUGIN) as plugin:
        plugin.event("a", "raise")
        assert plugin.stderr_line() == "p: the handler of a failed: not this one\n"
        plugin.event("a", {"x": 1})
        event = {"topic": "plugin.inbound.p", "source": "p", "payload": {"x": 1}}
        published = {"topic": "plugin.inbound.p", "event": event}
        assert plugin.read() == {"jsonrpc": "2.0", "method": "broker.publish", "params": published}


def test_a_tool_that_exits_answers_instead(tmp_path: Path, source: str) -> None:
    with running(tmp_path, source) as plugin:
        assert plugin.tool("raises_exit")["code"] == -33403
        assert plugin.tool("echo", 1) == 1


@BOTH
@requirement("nexo:sdk-shutdown-drain")
def test_shutdown_waits_for_handlers_then_answers_then_leaves_without_the_end_of_input(
    tmp_path: Path, source: str, way: str
) -> None:
    path = gate(tmp_path)
    with running(tmp_path, source) as plugin:
        call = tool(plugin, f"held{way}")
        goodbye = shutdown(plugin)
        late = tool(plugin, "echo")
        assert plugin.read()["error"]["code"] == -33404, late  # heard while handlers finish
        plugin.event("a", "late")
        open_gate(path)
        assert plugin.read() == {"jsonrpc": "2.0", "id": call, "result": "held"}
        assert plugin.read() == {"jsonrpc": "2.0", "id": goodbye, "result": {"ok": True}}
        assert plugin.status() == 0


@BOTH
@requirement("nexo:sdk-abandon")
def test_what_waits_for_the_host_fails_at_once_when_it_says_good_bye(tmp_path: Path, source: str, way: str) -> None:
    with running(tmp_path, source) as plugin:
        call = tool(plugin, f"recalls{way}")
        assert plugin.read()["method"] == "memory.recall"
        goodbye = shutdown(plugin)
        answer = plugin.read()
        assert (answer["id"], answer["error"]["code"]) == (call, -33404)
        assert "the host asked this plugin to shut down" in answer["error"]["message"]
        assert plugin.read()["id"] == goodbye
        assert plugin.status() == 0


def test_a_service_asked_for_while_leaving_is_refused_at_once(tmp_path: Path, source: str) -> None:
    with running(tmp_path, source) as plugin:
        tool(plugin, "recalls_twice")
        plugin.read()
        shutdown(plugin)
        assert plugin.read()["result"] == ["unavailable", "unavailable"]


@requirement("nexo:sdk-shutdown-bound")
def test_a_handler_that_never_ends_does_not_keep_the_plugin(tmp_path: Path, source: str) -> None:
    gate(tmp_path)
    with running(tmp_path, f"{source}\nimport plugbay.sdk.runtime.resident as r; r.DRAIN_SECONDS = 0.05") as plugin:
        tool(plugin, "held")
        shutdown(plugin)
        assert plugin.read()["result"] == {"ok": True}
        assert plugin.status() == 0
        assert "p: 1 handlers did not finish within 0.05 s" in plugin.errors()


@requirement("nexo:sdk-shutdown-answer")
def test_a_good_bye_needs_no_thread_of_its_own(tmp_path: Path) -> None:
    with running(tmp_path, f"{PLUGIN}\n{NO_THREADS}\nr.DRAIN_SECONDS = 0.05") as plugin:
        shutdown(plugin)
        assert plugin.read()["result"] == {"ok": True}
        assert plugin.status() == 0


UNREAD = """
plugin = Plugin("p")

@plugin.tool()
def talks():
    return "x" * 1_000_000

@plugin.tool()
def complains():
    sys.stderr.write("x" * 1_000_000)

@plugin.on_shutdown
def bye():
    open("bye", "w").close()

import plugbay.sdk.runtime.resident as r
r.DRAIN_SECONDS, r.LEAVE_SECONDS, r.LAST_SECONDS = 0.05, 5.0, 1.0
"""


@pytest.mark.parametrize("name", ["talks", "complains"])
@pytest.mark.parametrize("how", ["shutdown", "end of input"])
@pytest.mark.parametrize("thought", ["", THOUGHT_QUICK], ids=["unknown", "thought quick"])
@requirement("nexo:sdk-shutdown-bound")
def test_a_host_that_reads_nothing_does_not_keep_the_process(tmp_path: Path, name: str, how: str, thought: str) -> None:
    with running(tmp_path, f"{UNREAD}\n{thought}") as plugin:
        plugin.ask("initialize")
        tool(plugin, name)
        if how == "shutdown":
            shutdown(plugin)
        else:
            plugin.close()
        assert plugin.status() in (0, 1)
        assert (tmp_path / "bye").exists() or name == "complains"


FAREWELL = """
plugin = Plugin("p")

@plugin.on_shutdown
def first():
    print("first")

@plugin.on_shutdown
async def second(ctx):
    await ctx.events.publish("t", "bye")
    {last}
"""


@requirement("nexo:sdk-shutdown-answer")
def test_the_authors_farewell_runs_before_the_answer(tmp_path: Path) -> None:
    with running(tmp_path, FAREWELL.format(last="")) as plugin:
        shutdown(plugin)
        assert plugin.read()["params"]["event"]["payload"] == "bye"
        assert plugin.read()["result"] == {"ok": True}
        assert plugin.status() == 0
        assert plugin.errors() == "first\n"


@requirement("nexo:sdk-shutdown-error")
@pytest.mark.parametrize("last", ['raise OSError("disk full")', "import asyncio; await asyncio.Event().wait()"])
def test_a_farewell_that_fails_is_the_answer(tmp_path: Path, last: str) -> None:
    soon = "import plugbay.sdk.runtime.resident as r; r.LEAVE_SECONDS = 1.0; r.LAST_SECONDS = 60.0"
    with running(tmp_path, f"{FAREWELL.format(last=last)}\n{soon}") as plugin:
        shutdown(plugin)
        while "error" not in (said := plugin.read()):  # on a busy machine its time may end before its event
            assert said["method"] == "broker.publish"
        error = said["error"]
        assert error["code"] == -32000
        assert error["message"] in ("OSError: disk full", "on_shutdown did not finish in time")
        assert plugin.status() == 0


def test_a_good_bye_that_wants_no_answer_gets_none(tmp_path: Path) -> None:
    with running(tmp_path, PLUGIN) as plugin:
        plugin.send(method="shutdown")
        assert plugin.status() == 0
        assert plugin.process.stdout is not None
        assert plugin.process.stdout.read() == b""


@BOTH
@requirement("nexo:sdk-eof")
def test_the_end_of_input_is_a_good_bye_too_and_answers_are_still_written(
    tmp_path: Path, source: str, way: str
) -> None:
    path = gate(tmp_path)
    with running(tmp_path, source) as plugin:
        call = tool(plugin, f"held{way}")
        tool(plugin, "recalls")
        assert plugin.read()["method"] == "memory.recall"
        plugin.close()
        answer = plugin.read()
        assert "the host closed our input" in answer["error"]["message"]
        open_gate(path)
        assert plugin.read() == {"jsonrpc": "2.0", "id": call, "result": "held"}
        assert plugin.status() == 0


def test_input_that_ends_during_the_good_bye_changes_nothing(tmp_path: Path, source: str) -> None:
    path = gate(tmp_path)
    with running(tmp_path, source) as plugin:
        tool(plugin, "held")
        goodbye = shutdown(plugin)
        plugin.close()
        open_gate(path)
        assert plugin.read()["result"] == "held"
        assert plugin.read()["id"] == goodbye
        assert plugin.status() == 0


@requirement("nexo:sdk-signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_plugin_in_good_order_and_without_a_word_on_the_wire(
    tmp_path: Path, source: str, number: int
) -> None:
    path = gate(tmp_path)
    with running(tmp_path, f'{source}\nplugin.on_shutdown(lambda: print("bye"))') as plugin:
        plugin.tool("echo", 1)
        call = tool(plugin, "held")
        with path.open("wb"):  # the handler is at the gate
            plugin.process.send_signal(number)
        assert plugin.read()["id"] == call
        assert plugin.status() == 0
        assert plugin.process.stdout is not None
        assert plugin.process.stdout.read() == b""
        assert plugin.errors() == "bye\n"


@requirement("nexo:sdk-noise")
def test_lines_that_cannot_be_read_are_noted_on_stderr_and_never_answered(tmp_path: Path, source: str) -> None:
    with running(tmp_path, source) as plugin:
        plugin.write(b"x" * 1_060_000 + b"\n")
        assert "max" in plugin.stderr_line()
        plugin.write(b"not json at all\n")
        assert "malformed" in plugin.stderr_line()
        assert plugin.tool("echo", 1) == 1


def test_a_host_that_stops_reading_is_told_about_on_stderr_only(tmp_path: Path, source: str) -> None:
    with running(tmp_path, source) as plugin:
        plugin.tool("echo", 1)
        assert plugin.process.stdout is not None
        plugin.process.stdout.close()
        tool(plugin, "echo")
        assert "no longer reads" in plugin.stderr_line()
        plugin.close()
        assert plugin.status() == 0
