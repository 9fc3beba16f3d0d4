"""What each contract carries of a plugin."""

from __future__ import annotations

import pytest

from plugbay.contracts.nexo.manifest import HOOK_POINTS
from plugbay.contracts.registry import CONTRACTS as KNOWN
from plugbay.sdk import Plugin
from plugbay.sdk.contract_support import (
    CONTRACTS,
    NEXO_HOOKS,
    SUFFICIENT,
    SUPPORTED,
    declarations_of,
    unsupported_declarations,
    unsupported_reason,
)
from tests.support.requirements import requirement


class Channel:
    def start(self, instance: str) -> None: ...
    def stop(self) -> None: ...
    def send(self, message: object) -> str:
        return "1"


def everything(id: str = "example.all") -> Plugin:
    """One of each kind of declarations."""
    plugin = Plugin(
        id,
        config_schema={"type": "object", "properties": {"depth": {}}},
        secrets_schema={"type": "object", "properties": {"token": {}}},
    )
    plugin.tool("look")(lambda: 1)
    plugin.method("index.rebuild")(lambda: 1)
    plugin.hook("before_message", "on_session_start", "run.completed", export="watch")(lambda event: None)
    plugin.compactor(export="shorten")(lambda messages: messages)
    plugin.harness("triage")(lambda run: None)
    plugin.channel("post")(Channel)
    plugin.llm_provider("toy")(lambda request: "")
    plugin.vector_backend("memory")(object())
    plugin.on_event("plugin.outbound.post")(lambda event: None)
    plugin.on_event("other.topic")(lambda event: None)
    plugin.notifies("changed")
    plugin.screen("main")(lambda canvas: None)
    plugin.cli("all")(lambda argv: None)
    plugin.action("act")(lambda data: b"")
    plugin.on_action("refresh")(lambda payload: None)
    plugin.on_snapshot("usage.calls")(lambda snapshot: None)
    plugin.publishes("usage.total")
    plugin.knob("depth", type="int_range", label="Depth", min=1, max=9)
    return plugin


def test_the_contracts_are_those_that_there_are_in_their_order() -> None:
    assert list(CONTRACTS) == list(KNOWN) == list(SUPPORTED) == list(SUFFICIENT)


def test_the_hooks_of_nexo_are_those_of_the_contract() -> None:
    assert NEXO_HOOKS == HOOK_POINTS


def test_every_kind_is_declared_here_and_supported_by_a_contract() -> None:
    found = declarations_of(everything())
    assert all(found.values())
    assert set(found) == {kind for kinds in SUPPORTED.values() for kind in kinds}


def test_rune_leaves_out_everything_but_tools() -> None:
    kinds = [words.partition(" ")[0] for words in unsupported_declarations(everything(), "rune")]
    assert kinds[:4] == ["methods", "hooks", "compactor", "harnesses"]
    assert len(unsupported_declarations(everything(), "rune")) == len(declarations_of(everything())) - 1


@requirement("mcp:sdk-carried")
def test_mcp_leaves_out_everything_but_tools() -> None:
    assert unsupported_declarations(everything(), "mcp") == unsupported_declarations(everything(), "rune")


@pytest.mark.parametrize(
    ("contract", "hooks"),
    [
        ("nexo", "hooks on_session_start, run.completed"),
        ("kaged", "hooks before_message, run.completed"),
        ("vai", "hooks before_message, on_session_start"),
    ],
)
def test_a_contract_leaves_out_the_hooks_of_others(contract: str, hooks: str) -> None:
    assert hooks in unsupported_declarations(everything(), contract)


def test_events_that_nexo_would_never_deliver_are_left_out() -> None:
    assert "event handlers other.topic" in unsupported_declarations(everything(), "nexo")


def test_ainb_carries_screens_and_command_lines_and_tools_as_such() -> None:
    words = unsupported_declarations(everything(), "ainb")
    assert "methods index.rebuild" in words
    assert not any(word.startswith(("tools", "screens", "command lines", "actions", "snapshots")) for word in words)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_plugin_with_everything_is_carried_by_all(contract: str) -> None:
    assert unsupported_reason(everything(), contract) == ""


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_plugin_with_nothing_is_carried_by_none(contract: str) -> None:
    assert unsupported_reason(Plugin("empty"), contract).startswith(f"it declares nothing that {contract} supports")


def test_a_hook_of_another_contract_is_nothing_to_carry() -> None:
    plugin = Plugin("p")
    plugin.hook("on_session_start")(lambda event: None)
    assert unsupported_reason(plugin, "kaged") == ""
    assert unsupported_reason(plugin, "vai") != ""


def test_an_id_with_a_slash_is_none_of_rune() -> None:
    assert unsupported_reason(everything("acme/all"), "rune") == "an id of rune has no slash, as 'acme/all' has"
    assert unsupported_reason(everything("acme/all"), "vai") == ""
