"""A plugin served in memory: how it begins, how it ends, and what it must not leave behind."""

from __future__ import annotations

import sys

import pytest

from plugbay.sdk import Plugin, testing
from plugbay.sdk.testing import CallFailed
from plugbay.sdk.testing.session import Overheard


def test_on_ready_runs_before_the_test_and_on_shutdown_after_it() -> None:
    plugin, seen = Plugin("p"), list[str]()
    plugin.tool("t")(lambda: seen.append("t"))
    plugin.on_ready(lambda: seen.append("ready"))
    plugin.on_shutdown(lambda: seen.append("over"))
    with testing.host(plugin) as host:
        assert seen == ["ready"]
        host.call("t")
    assert seen == ["ready", "t", "over"]


def test_an_on_ready_that_fails_is_heard_of() -> None:
    plugin = Plugin("p")
    plugin.tool("t")(lambda: 1)
    plugin.on_ready(lambda: 1 // 0)
    with pytest.raises(CallFailed, match="division"), testing.host(plugin):
        raise AssertionError("it was not ready")


def test_what_the_plugin_raises_outside_of_handlers_is_raised() -> None:
    plugin = Plugin("p")
    plugin.screen("here")(lambda canvas: None)
    plugin.on_key("elsewhere", "a")(lambda key: None)
    with pytest.raises(ValueError, match="'elsewhere' are listened to"), testing.host(plugin, "ainb"):
        raise AssertionError("it was served")


def test_the_hosts_services_are_there_outside_of_handlers_only_while_it_is_served() -> None:
    plugin = Plugin("p", capabilities=["memory.recall"])
    plugin.tool("t")(lambda: 1)
    with testing.host(plugin) as host:
        host.memory.put("ada", "tea")
        assert len(plugin.host.memory.recall("ada", "tea")) == 1
    with pytest.raises(Exception, match=r"does not offer ctx\.memory"):
        plugin.host.memory.recall("ada", "tea")


def test_one_plugin_can_be_served_again_and_again() -> None:
    plugin = Plugin("p")
    plugin.tool("t")(lambda: 1)
    for contract in ("nexo", "nexo", "kaged"):
        with testing.host(plugin, contract) as host:
            assert host.call("t") == 1


def test_what_passes_through_a_stream_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    stream = Overheard(sys.stderr)
    stream.write("one\ntwo")
    assert stream.lines == ["one", "two"] and stream.writable()
    assert capsys.readouterr().err == "one\ntwo"
