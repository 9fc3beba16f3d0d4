"""The same host without a loop, from several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plugbay import CallFailed, SyncHost
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


def test_several_threads_share_one_host(tmp_path: Path) -> None:
    write_plugin(tmp_path)
    with SyncHost.load(tmp_path) as host, ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda n: host.call("t", n), range(24))) == list(range(24))


def test_stopping_twice_is_harmless(tmp_path: Path) -> None:
    host = SyncHost.load(tmp_path)
    host.start()
    host.stop()
    host.stop()
