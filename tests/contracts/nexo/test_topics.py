"""Registered channels yield four patterns each; what a plugin adds stays within its own names."""

from __future__ import annotations

import pytest

from plugbay.contracts.nexo.manifest import parse
from tests.contracts.nexo.manifests import ROOT, good, manifest, problems
from tests.support.requirements import requirement

SLACK = '[[plugin.channels.register]]\nkind = "slack"\nadapter = "SlackChannelAdapter"\n'


@requirement("nexo:manifest-topics")
def test_a_registered_kind_is_heard_outbound_and_published_inbound() -> None:
    spec = good(manifest(SLACK + '[[plugin.channels.register]]\nkind = "discord"\nadapter = "D"'))
    assert spec.subscribes == (
        "plugin.outbound.slack",
        "plugin.outbound.slack.>",
        "plugin.outbound.discord",
        "plugin.outbound.discord.>",
    )
    assert spec.publishes == (
        "plugin.inbound.slack",
        "plugin.inbound.slack.>",
        "plugin.inbound.discord",
        "plugin.inbound.discord.>",
    )


@requirement("nexo:manifest-topics")
def test_a_plugin_without_a_registered_kind_hears_and_says_nothing() -> None:
    spec = good(manifest())
    assert (spec.subscribes, spec.publishes) == ((), ())


def test_a_kind_registered_twice_yields_its_patterns_once() -> None:
    assert good(manifest(SLACK * 2)).subscribes == ("plugin.outbound.slack", "plugin.outbound.slack.>")


def test_patterns_of_later_hosts_are_added_without_repeats() -> None:
    text = (
        SLACK
        + '[plugin.capabilities.broker]\nsubscribe = ["plugin.outbound.slack", "plugin.slack.admin.>"]\n'
        + 'publish = ["plugin.slack.done", "plugin.slack.done", "plugin.inbound.*.news"]'
    )
    spec = good(manifest(text))
    assert spec.subscribes == ("plugin.outbound.slack", "plugin.outbound.slack.>", "plugin.slack.admin.>")
    assert spec.publishes == (
        "plugin.inbound.slack",
        "plugin.inbound.slack.>",
        "plugin.slack.done",
        "plugin.inbound.*.news",
    )


@requirement("nexo:manifest-topics-own")
@pytest.mark.parametrize("key", ["subscribe", "publish"])
@pytest.mark.parametrize(
    "pattern",
    [
        ">",
        "*",
        "agent.route.>",
        "command.x",
        "plugin.>",
        "plugin.*.x",
        "plugin.lifecycle.slack.crashed",
        "plugin.other.x",
        "plugin.slacker.x",
        "",
        ".",
        "plugin.slack.",
        "plugin.slack..x",
        "plugin.slack.>.x",
        " plugin.slack.x",
    ],
)
def test_a_pattern_beyond_the_plugins_own_names_is_not_honoured(key: str, pattern: str) -> None:
    text = manifest(f'[plugin.capabilities.broker]\n{key} = ["{pattern}", "plugin.slack.x"]')
    assert problems(text) == [("warning", "topic_not_allowed", f"plugin.capabilities.broker.{key}[0]")]
    spec, _ = parse(text, ROOT, {})
    assert spec is not None
    assert {"subscribe": spec.subscribes, "publish": spec.publishes}[key] == ("plugin.slack.x",)


@requirement("nexo:manifest-topics-own")
def test_a_plugin_hears_only_what_is_outbound_and_says_only_what_is_inbound() -> None:
    assert problems(manifest('[plugin.capabilities.broker]\nsubscribe = ["plugin.inbound.x"]'))
    assert problems(manifest('[plugin.capabilities.broker]\npublish = ["plugin.outbound.x"]'))


def test_a_channel_that_no_event_reaches_is_a_warning() -> None:
    extends = '[plugin.extends]\nchannels = ["slack", "discord"]\n'
    assert problems(manifest(extends)) == [
        ("warning", "channel_not_registered", "plugin.extends.channels[0]"),
        ("warning", "channel_not_registered", "plugin.extends.channels[1]"),
    ]
    assert problems(manifest(extends + SLACK)) == [("warning", "channel_not_registered", "plugin.extends.channels[1]")]
    broker = '[plugin.capabilities.broker]\nsubscribe = ["plugin.outbound.discord"]'
    assert problems(manifest(extends + SLACK + broker)) == []
