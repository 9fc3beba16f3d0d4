"""The tables of methods, and the names of granted capabilities."""

from __future__ import annotations

import pytest

from plugbay.contracts.ainb import messages
from plugbay.contracts.ainb.messages import CAPABILITIES, Identity, granted_names
from tests.support.requirements import requirement


@requirement("ainb:wire-methods")
def test_the_methods_are_those_of_the_contract() -> None:
    def names(table: tuple[messages.Method, ...]) -> list[str]:
        return [method.name for method in table]

    assert names(messages.PLUGIN_REQUESTS) == ["plugin/render", "plugin/cli_dispatch", "host/action/invoke"]
    assert names(messages.PLUGIN_NOTIFICATIONS) == [
        "plugin/handle_event",
        "plugin/handle_key",
        "plugin/handle_mouse",
        "plugin/handle_action",
    ]
    assert names(messages.HOST_REQUESTS) == [
        "host/snapshot/get",
        "host/snapshot/subscribe",
        "host/action/invoke",
        "host/fs/read_dir",
        "host/fs/read_file",
        "host/network/fetch",
    ]
    assert names(messages.HOST_NOTIFICATIONS) == ["host/snapshot/publish", "host/log"]
    assert (messages.INIT, messages.SHUTDOWN) == ("plugin/init", "plugin/shutdown")


@requirement("ainb:wire-body-cap", "ainb:wire-abi")
def test_the_numbers_are_those_of_the_contract() -> None:
    assert (messages.MAX_BODY, messages.ABI_VERSION) == (16 * 1024 * 1024, 2)


@requirement("ainb:wire-granted-names")
@pytest.mark.parametrize(
    ("granted", "names"),
    [
        ((), []),
        (("network=api.openai.com", "event_bus", "network=other"), ["event_bus", "network"]),
        (("secrets:read=key", "read_paths=~/notes", "read_sessions"), ["read_sessions", "read_paths", "secrets:read"]),
        (("later=x", "event_bus=usage.*"), ["event_bus", "later"]),
        (tuple(reversed(CAPABILITIES)), list(CAPABILITIES)),
    ],
)
def test_granted_capabilities_are_listed_by_name_in_one_order(granted: tuple[str, ...], names: list[str]) -> None:
    assert granted_names(granted) == names


def test_an_identity_without_a_manifest_tells_an_empty_one() -> None:
    assert (Identity("p", "1.0.0").manifest, Identity("p", "1.0.0").namespaces) == ({}, ())
