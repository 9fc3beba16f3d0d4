"""The same host without a loop, from several threads."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from plugbay import CallFailed, Code, PlugbayError, SyncHost
from plugbay.host.screens.keys import parse_key
from plugbay.host.screens.screens import CliOutput
from tests.support.ainb import write_ainb_plugin
from tests.support.patience import PATIENCE
from tests.support.plugins import write_plugin
from tests.support.vai import write_vai_plugin


def test_a_script_calls_without_a_loop(tmp_path: Path) -> None:
    write_plugin(tmp_path)
    with SyncHost.load(tmp_path) as host:
        assert host.call("t", {"a": 1}) == {"a": 1}
        assert list(host.exports()) == ["p/t"]
        assert host.attempt("nope").failure is not None
        assert host.meet() == {} and host.meet("nobody")["nobody"].code == Code.NOT_FOUND
        host.reload("p")
        with pytest.raises(CallFailed):
            host.call("nope")
        assert host.plugins()[0].state == "idle"
        assert host.problems == []


def test_several_threads_share_one_host(tmp_path: Path) -> None:
    write_plugin(tmp_path)
    with SyncHost.load(tmp_path) as host, ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda n: host.call("t", n), range(24))) == list(range(24))


def test_stopping_twice_is_harmless(tmp_path: Path) -> None:
    host = SyncHost.load(tmp_path)
    host.start()
    host.stop()
    host.stop()


def test_a_host_that_does_not_run_says_so_and_starts_once(tmp_path: Path) -> None:
    write_plugin(tmp_path)
    host = SyncHost.load(tmp_path)
    with pytest.raises(CallFailed, match="not running"):
        host.call("t")
    host.start()
    with pytest.raises(PlugbayError, match="already started"):
        host.start()
    host.stop()
    with pytest.raises(CallFailed, match="not running"):
        host.call("t")


def test_stopping_ends_the_calls_of_other_threads(tmp_path: Path) -> None:
    write_plugin(tmp_path, script="read -r _; printf '%s\\n' '{hello}'; sleep 60\n")
    host = SyncHost.load(tmp_path)
    host.start()
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(host.attempt, "t") for _ in range(4)]
        while host.plugins()[0].busy < 4:
            time.sleep(0.005)
        host.stop()
        assert all(call.result(10).failure is not None for call in calls)


def test_a_script_draws_types_clicks_and_runs_command_lines(tmp_path: Path) -> None:
    body = """
    def handle_mouse(params):
        keys.append(params["mouse"]["kind"]["type"])
    def handle_action(params):
        keys.append(params["action_id"])
    """
    write_ainb_plugin(tmp_path, body=body, screens=["main"], namespaces=["n"])
    scroll = {"kind": {"type": "scroll_up"}, "col": 0, "row": 0, "mods": 0}
    with SyncHost.load(tmp_path) as host:
        assert [screen.name for screen in host.screens.all()] == ["p/main"]
        assert host.screens.dirty("main")
        assert host.screens.render("main", 30, 2).lines() == ["p 30x2", "keys"]
        assert host.screens.press("main", parse_key("a"))
        assert host.screens.mouse("main", scroll)
        assert host.screens.act("p", "go")
        assert host.screens.dirty("main") and not host.screens.wedged("p")
        assert host.screens.render("main", 30, 2, timeout=PATIENCE).lines() == ["p 30x2", "keys a scroll_up go"]
        assert host.run_cli("n", ["x"], timeout=PATIENCE) == CliOutput(b"n x\n", b"", 0)
        with pytest.raises(CallFailed, match="no screen is called"):
            host.screens.press("nope", parse_key("a"))


def test_a_script_publishes_and_hears(tmp_path: Path) -> None:
    with SyncHost.load(tmp_path) as host, host.subscribe("orders.>", "bills.*") as events:
        host.publish("orders.tea.new", {"cups": 2})
        host.publish("other", 1)
        host.publish("bills.a", 3, source="till")
        heard = [next(events), next(events)]
        assert [(event.topic, event.payload, event.source) for event in heard] == [
            ("orders.tea.new", {"cups": 2}, "host"),
            ("bills.a", 3, "till"),
        ]
        assert events.wait(0.01) is None
        with pytest.raises(ValueError, match=r"cannot publish to 'orders\.\.tea'"):
            host.publish("orders..tea", 1)


def test_what_happens_to_a_plugin_is_heard_by_a_script(tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, screens=["main"])
    with SyncHost.load(tmp_path) as host, host.subscribe("plugin.lifecycle.>") as events:
        host.screens.render("main", 30, 2)
        assert next(events).topic == "plugin.lifecycle.p.started"


def test_a_slow_script_loses_the_newest_and_can_tell(tmp_path: Path) -> None:
    with SyncHost.load(tmp_path) as host, host.subscribe(">", depth=2) as events:
        for number in range(5):
            host.publish("t", number)
        assert [next(events).payload, next(events).payload, events.dropped] == [0, 1, 3]
        with pytest.raises(ValueError, match="at least one event"):
            host.subscribe(">", depth=0)


def test_what_still_waits_is_heard_after_the_end(tmp_path: Path) -> None:
    host = SyncHost.load(tmp_path)
    host.start()
    closed, open_ = host.subscribe("t"), host.subscribe("t")
    for number in range(2):
        host.publish("t", number)
    closed.close()
    closed.close()
    host.publish("t", 2)
    host.stop()
    assert [event.payload for event in closed] == [0, 1]
    assert [event.payload for event in open_] == [0, 1, 2]
    assert (list(closed), open_.wait()) == ([], None)
    open_.close()
    with pytest.raises(CallFailed, match="not running"):
        host.publish("t", 3)
    with pytest.raises(CallFailed, match="not running"):
        host.subscribe("t")


@pytest.mark.parametrize("end", ["close", "stop"])
def test_whoever_waits_for_an_event_is_not_left_waiting(tmp_path: Path, end: str) -> None:
    host = SyncHost.load(tmp_path)
    host.start()
    with ThreadPoolExecutor(3) as threads:
        events = host.subscribe(">")
        waiting: list[Future[Any]] = [threads.submit(list, events) for _ in range(2)]
        waiting.append(threads.submit(events.wait))
        while len(host._running) < 3:
            time.sleep(0.005)
        events.close() if end == "close" else host.stop()
        assert [wait.result(20) for wait in waiting] == [[], [], None]
    host.stop()


def test_a_script_has_work_done_in_an_invocation(tmp_path: Path) -> None:
    write_vai_plugin(tmp_path)
    with SyncHost.load(tmp_path, grant_all=True) as host:
        result = host.invoke("t", {}, org_id="org_1")
        assert result.failure is None and result.invocation is not None
        assert (result.invocation.org_id, result.status) == ("org_1", "succeeded")
