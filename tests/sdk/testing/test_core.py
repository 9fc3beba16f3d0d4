"""Which export is meant, whether the host runs, and what a begun call is."""

from __future__ import annotations

import pytest

from plugbay.model.operations import InvokeTool, PerformAction
from plugbay.sdk import Plugin, testing
from plugbay.sdk.testing import CallFailed


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
    with testing.host(plugin, "rune") as host, pytest.raises(CallFailed, match="nobody to tell something under rune"):
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
