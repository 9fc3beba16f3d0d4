"""The names and limits of kaged, and what a plugin says about itself."""

from __future__ import annotations

from plugbay.contracts.kaged.messages import MAX_READ, MAX_SENT, Identity, identity_reply, on_wire, topic
from tests.support.requirements import requirement


@requirement("kaged:wire-initialize-reply")
def test_a_plugin_names_its_tools_among_its_methods_each_once() -> None:
    identity = Identity(
        "p",
        "0.2.0",
        methods=("p.report.daily", "p.t"),
        tools=("t", "u"),
        notifications=("n",),
        capabilities_used=("c",),
    )
    assert identity_reply(identity) == {
        "name": "p",
        "version": "0.2.0",
        "api_version": 1,
        "methods": ["p.report.daily", "p.t", "p.u"],
        "notifications": ["n"],
        "capabilities_used": ["c"],
    }


@requirement("kaged:wire-tool-prefix")
def test_a_tool_carries_the_name_of_its_plugin_and_a_notification_becomes_a_topic() -> None:
    assert on_wire("memory-markdown", "retain") == "memory-markdown.retain"
    assert topic("memory-markdown", "stored") == "plugin.memory-markdown.stored"


@requirement("kaged:wire-limit")
def test_what_we_send_fits_both_readings_of_four_megabytes_and_what_we_read_is_the_larger() -> None:
    assert MAX_SENT == 4 * 10**6
    assert MAX_READ == 4 * 2**20
