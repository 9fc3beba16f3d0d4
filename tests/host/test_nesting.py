"""Plugins that call one another in a circle, through every service of the host that calls plugins: bounded, no hang."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plugbay import CallFailed, Code, Host
from plugbay.contracts.mcp.spec import resident
from plugbay.host import nesting
from plugbay.host.inbound.handler import RESOURCE_CHANGED, InboundHandler, Services
from plugbay.host.nesting import CAUSE, MAX_CALLS, MAX_DEPTH, Cause
from plugbay.host.records import MemoryCallLog
from plugbay.model.errors import Failure
from plugbay.model.operations import ChangeResource
from tests.support.ainb import write_ainb_plugin
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import PATIENCE, until

# Values.


def test_a_cause_nests_up_to_its_depth_and_its_budget(run: Run) -> None:
    async def main() -> None:
        cause: Cause | Failure = Cause(1)
        for _ in range(MAX_DEPTH - 1):
            assert isinstance(cause, Cause)
            cause = cause.nest()
        assert isinstance(cause, Cause) and cause.depth == MAX_DEPTH
        refused = cause.nest()
        assert isinstance(refused, Failure) and refused.detail["max_depth"] == MAX_DEPTH
        wide = Cause(1)
        for _ in range(MAX_CALLS):
            assert isinstance(wide.nest(), Cause)
        refused = wide.nest()
        assert isinstance(refused, Failure) and refused.detail["max_calls"] == MAX_CALLS

    run(main)


def test_the_budget_and_the_end_are_those_of_the_first_cause(run: Run) -> None:
    async def main() -> None:
        now = asyncio.get_running_loop().time()
        first = Cause(1, now + 1000)
        second = first.nest()
        assert isinstance(second, Cause)
        third = second.nest()
        assert isinstance(third, Cause)
        assert (first.spent.calls, third.until) == (2, now + 1000)
        assert 0 < third.left() <= 1000
        assert Cause(1, now - 1).left() == 0
        assert Cause(1).left() == float("inf")

    run(main)


# Circles of real plugins.

CIRCLE = """
asked = {}
def ask(m, fan=1):
    # Ask the host for a completion by NEXT, `fan` times at once; answer when all answers are there.
    key = "r%s" % m["id"]
    asked[key] = [m, fan, []]
    for number in range(fan):
        request("%s.%d" % (key, number), "llm.complete", provider=NEXT, model="m", max_tokens=5,
                messages=[{"role": "user", "content": "again"}], stream=False)
def answered(m):
    entry = asked.get(str(m["id"]).rpartition(".")[0])
    if entry is None: return
    entry[2].append(m)
    if len(entry[2]) < entry[1]: return
    texts = []
    for each in entry[2]:
        if "error" in each:
            texts.append("refused: " + each["error"]["message"])
        else:
            texts.append(each["result"]["content"])
    open(LOG, "a").write("x")
    done(entry[0], " | ".join(sorted(set(texts))))
def done(m, text):
    if m["method"] == "tool.invoke":
        reply(m, {"text": text})
    else:
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        reply(m, {"content": {"type": "text", "text": text}, "usage": usage, "finish_reason": {"kind": "stop"}})
def llm_chat(m):
    open(LOG, "a").write("c")
    ask(m, FAN)
def tool_invoke(m):
    ask(m, 1)
"""


def circle(folder: Path, names: list[str], fan: int = 1, more: str = "") -> Path:
    """Nexo plugins, each of which provides a model that asks for the model of the next one. Returns their log."""
    log = folder / "log"
    log.touch()
    for at, name in enumerate(names):
        following = names[(at + 1) % len(names)]
        body = f"NEXT, FAN, LOG = {following!r}, {fan}, {str(log)!r}\n{CIRCLE}"
        write_nexo_plugin(folder / "plugins", name, body, tools=["go"], extends={"llm_providers": [name]}, more=more)
    return log


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c"]], ids=len)
def test_models_of_plugins_that_ask_for_one_another_end_at_the_depth(
    run: Run, tmp_path: Path, names: list[str]
) -> None:
    log = circle(tmp_path, names)

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", grant_all=True) as host:
            answer = await host.call("a_go", {}, timeout=PATIENCE)
            assert answer["text"].startswith("refused: ")
            assert f"{MAX_DEPTH} calls are already waiting for one another" in answer["text"]
            assert log.read_text().count("c") == MAX_DEPTH - 1
            # The plugins live on, and the next call has its own depth.
            log.write_text("")
            assert (await host.call("a_go", {}, timeout=PATIENCE))["text"] == answer["text"]
            assert log.read_text().count("c") == MAX_DEPTH - 1

    run(main)


def test_without_the_limit_the_same_circle_goes_on(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The positive control."""
    log = circle(tmp_path, ["a", "b"])
    monkeypatch.setattr(nesting, "MAX_DEPTH", 5 * MAX_DEPTH)

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", grant_all=True) as host:
            await host.call("a_go", {}, timeout=PATIENCE)
        assert log.read_text().count("c") == 5 * MAX_DEPTH - 1

    run(main)


def test_a_circle_that_branches_ends_at_the_number_of_calls(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 4 requests at each level there would be 1 + 4 + 16 calls."""
    log = circle(tmp_path, ["a", "b", "c"], fan=4)
    monkeypatch.setattr(nesting, "MAX_CALLS", 10)

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", grant_all=True) as host:
            answer = await host.call("a_go", {}, timeout=PATIENCE)
            assert "one request of a plugin has led to 10 calls" in answer["text"]
            assert log.read_text().count("c") == 10
            monkeypatch.setattr(nesting, "MAX_CALLS", 1000)
            log.write_text("")
            await host.call("a_go", {}, timeout=PATIENCE)
            assert log.read_text().count("c") == 1 + 4 + 16

    run(main)


SLOW = """
def llm_chat(m):
    open(LOG, "a").write("c")
"""
"""A model that never answers."""


@pytest.mark.parametrize("acts_alone", [False, True])
def test_a_call_within_a_call_ends_with_it(run: Run, tmp_path: Path, acts_alone: bool) -> None:
    """A plugin that hears events asks for reasons of its own, too: its requests have their own time."""
    hears = '[[plugin.channels.register]]\nkind = "k"\nadapter = "A"\n' if acts_alone else ""
    log = circle(tmp_path, ["a"], more=hears)
    child = tmp_path / "plugins" / "a" / "child.py"
    child.write_text(child.read_text().replace("NEXT, FAN, LOG = 'a'", "NEXT, FAN, LOG = 'slow'"))
    write_nexo_plugin(tmp_path / "plugins", "slow", f"LOG = {str(log)!r}\n{SLOW}", extends={"llm_providers": ["slow"]})
    config = tmp_path / "plugbay.toml"
    config.write_text("[plugins.slow]\ntimeouts = { call = 3000 }\n")

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", config=config, grant_all=True) as host:

            def busy() -> int:
                return next(status.busy for status in host.plugins() if status.spec.id == "slow")

            with pytest.raises(CallFailed) as caught:
                await host.call("a_go", {}, timeout=1)
            assert caught.value.code == Code.TIMEOUT
            assert log.read_text() == "c"
            if acts_alone:
                assert busy() == 1
            else:
                await until(lambda: busy() == 0)  # its own time would be much longer

    run(main)


ACTIONS = """
waiting = {}
def onward(m):
    waiting[1000 + m["id"]] = m
    request(1000 + m["id"], "host/action/invoke", action=NEXT, payload=b64(b""), timeout_ms=50000)
def cli_dispatch(params, m):
    onward(m)
def action(params, m):
    onward(m)
def answered(m):
    asked = waiting.pop(m["id"])
    text = m["error"]["message"].encode() if "error" in m else unb64(m["result"]["payload"])
    if asked["method"] == "plugin/cli_dispatch":
        reply(asked, {"stdout": b64(text), "stderr": "", "exit_code": 0})
    else:
        reply(asked, {"payload": b64(text)})
"""


def calls_of(host: Host) -> int:
    assert isinstance(host.call_log, MemoryCallLog)
    return len([record for record in host.call_log.records if record.failure is None])


def test_actions_of_plugins_that_invoke_one_another_end_at_the_depth(run: Run, tmp_path: Path) -> None:
    for name, following in (("a", "b"), ("b", "a")):
        write_ainb_plugin(tmp_path, name, f"NEXT = {following!r}\n{ACTIONS}", namespaces=[name])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            for times in (1, 2):
                answer = (await host.run_cli("a", [])).stdout.decode()
                assert f"{MAX_DEPTH} calls are already waiting for one another" in answer
                assert calls_of(host) == times * MAX_DEPTH

    run(main)


@pytest.mark.parametrize("plain", [False, True], ids=["async", "on a thread"])
def test_an_action_of_the_application_that_calls_its_caller_again_ends_at_the_depth(
    run: Run, tmp_path: Path, plain: bool
) -> None:
    write_ainb_plugin(tmp_path, "a", f"NEXT = 'again'\n{ACTIONS}", namespaces=["a"])

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with Host.load(tmp_path) as host:

            async def again(data: bytes) -> bytes:
                return (await host.run_cli("a", [])).stdout

            def again_on_a_thread(data: bytes) -> bytes:
                return asyncio.run_coroutine_threadsafe(again(data), loop).result(PATIENCE)

            host.actions.register("again", again_on_a_thread if plain else again)
            answer = (await host.run_cli("a", [])).stdout.decode()
            assert "calls are already waiting for one another" in answer
            assert calls_of(host) == MAX_DEPTH

    run(main)


RECALLS = """
def memory_vector_search(m):
    open(LOG, "a").write("c")
    asked[m["id"]] = m
    request("s%s" % m["id"], "memory.recall", agent_id="a", query="tea", limit=3)
def tool_invoke(m):
    asked[m["id"]] = m
    request("s%s" % m["id"], "memory.recall", agent_id="a", query="tea", limit=3)
asked = {}
def answered(m):
    first = asked.pop(int(m["id"][1:]))
    reply(first, {"matches": []} if first["method"] != "tool.invoke" else {"ok": "result" in m})
def memory_vector_upsert(m):
    reply(m, {"count": 1})
"""


def test_a_vector_store_that_recalls_memories_ends_at_the_depth(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    body = f"LOG = {str(log)!r}\n{RECALLS}"
    root = write_nexo_plugin(tmp_path, "a", body, tools=["go"], extends={"memory_backends": ["own"]})
    config = tmp_path / "c.toml"
    config.write_text('[memory]\npath = "m.db"\nvectors = "own"\n')

    async def main() -> None:
        async with Host.load(root, config=config, grant_all=True) as host:
            # The memory answers by words where the search by vectors fails.
            assert await host.call("a_go", {}, timeout=PATIENCE) == {"ok": True}
            assert log.read_text() == "c" * (MAX_DEPTH - 1)

    run(main)


def test_an_event_leaves_no_cause_behind(run: Run, tmp_path: Path) -> None:
    """The context of a plugin's reader is that of the call that started the plugin."""

    async def main() -> None:
        seen: list[Cause | None] = []
        services = Services()
        services.bus.listen((RESOURCE_CHANGED,), lambda event: seen.append(CAUSE.get()))
        handler = InboundHandler(resident("srv", ("run",), tmp_path), (), services)
        CAUSE.set(Cause(MAX_DEPTH))
        handler.handle_notification(ChangeResource("file:///x"))
        assert seen == [None]
        assert CAUSE.get() is not None

    run(main)
