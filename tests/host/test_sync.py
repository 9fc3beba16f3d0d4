"""The same host without a loop, from several threads."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plugbay import CallFailed, PlugbayError, SyncHost
from tests.support.plugins import write_plugin


def test_a_script_calls_without_a_loop(tmp_path: Path) -> None:
    write_plugin(tmp_path)
    with SyncHost.load(tmp_path) as host:
        assert host.call("t", {"a": 1}) == {"a": 1}
        assert list(host.exports()) == ["p/t"]
        assert host.attempt("nope").failure is not None
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
    with pytest.raises(PlugbayError, match="started already"):
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
