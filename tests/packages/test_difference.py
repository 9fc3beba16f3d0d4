"""What an upgrade asks for that the installed release did not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plugbay.model.spec import Export, PluginSpec, SandboxRequest, SettingsSpec
from plugbay.packages.difference import asks, difference
from tests.support.requirements import requirement


def spec(**facts: Any) -> PluginSpec:
    return PluginSpec("p", "1", "rune", Path("/p"), ("./p",), **facts)


CLOSED = SandboxRequest()


@requirement("vai:package-permissions-shown")
def test_everything_a_plugin_wants_is_in_neutral_words() -> None:
    wants = spec(
        capabilities=("net:a.example",),
        optional_capabilities=("memory.recall",),
        sandbox=SandboxRequest(host_network=True, read=("/r",), write=("/w",)),
        env_inherit=("HOME",),
        subscribes=("news.>",),
        snapshots=("usage.today",),
        publishes=("mine.>",),
        settings=SettingsSpec(secrets_schema={"properties": {"token": {}}}),
    )
    assert asks(wants) == (
        "net:a.example",
        "may ask for memory.recall",
        "the host's network",
        "reads /r",
        "writes /w",
        "variable HOME",
        "hears news.>",
        "hears usage.today",
        "publishes mine.>",
        "secret token",
    )


def test_a_plugin_that_wants_nothing_asks_for_nothing() -> None:
    assert asks(spec(sandbox=CLOSED)) == ()


@requirement("vai:package-permissions-shown")
def test_only_what_is_new_has_to_be_agreed_to() -> None:
    before = spec(capabilities=("a", "b"), exports=(Export("tool", "old"), Export("tool", "both")), sandbox=CLOSED)
    after = spec(capabilities=("b", "c"), exports=(Export("tool", "both"), Export("hook", "new")), sandbox=CLOSED)
    found = difference(before, after)
    assert (found.asked, found.dropped) == (("c",), ("a",))
    assert (found.added_exports, found.removed_exports) == (("hook new",), ("tool old",))
    assert found.to_json()["asked"] == ["c"]


def test_giving_up_its_sandbox_is_something_to_agree_to() -> None:
    assert difference(spec(sandbox=CLOSED), spec()).asked == ("no sandbox of its own",)
    assert difference(spec(), spec(sandbox=CLOSED)).asked == ()


@requirement("vai:package-permissions-shown")
def test_what_only_another_export_was_allowed_has_to_be_agreed_to() -> None:
    def release(*words: str) -> PluginSpec:
        exports = (Export("tool", "fetch", capabilities=("network",)), Export("tool", "sum", capabilities=words))
        return spec(capabilities=("network", *words), exports=exports, sandbox=CLOSED)

    assert difference(release(), release("network")).asked == ("network for tool sum",)
    assert difference(release("network"), release()).asked == ()
    assert difference(release(), release("files")).asked == ("files",)


def test_becoming_a_plugin_of_another_contract_has_to_be_agreed_to() -> None:
    other = PluginSpec("p", "2", "nexo", Path("/p"), ("./p",), sandbox=CLOSED)
    assert difference(spec(sandbox=CLOSED), other).asked == ("another contract, nexo",)
