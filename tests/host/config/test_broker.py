"""`[broker]` of plugbay.toml: nothing is shared unless it is named, and no secret is in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.host.config.broker import MAX_TOPIC_BYTES, BrokerConfig, is_own, pattern_problem, topic_problem
from plugbay.host.config.config import load, parse
from plugbay.host.inbound.handler import RESOURCE_CHANGED
from plugbay.model.errors import ConfigInvalid
from tests.architecture import ROOT

URL = 'url = "nats://127.0.0.1:4222"'


def test_a_broker_shares_nothing_until_topics_are_named() -> None:
    broker = parse(f"[broker]\n{URL}").broker
    assert broker == BrokerConfig(url="nats://127.0.0.1:4222")
    assert (broker.topics, broker.prefix, broker.is_encrypted) == ([], "plugbay.events.", False)
    assert parse("").broker is None


def test_the_example_of_the_documentation_is_one() -> None:
    page = (ROOT / "docs" / "operate.md").read_text()
    example = page.partition("<!-- test: file several/plugbay.toml -->\n```toml\n")[2].partition("```")[0]
    broker = parse(example).broker
    assert broker is not None and broker.is_encrypted and broker.topics


def test_files_are_beside_the_file_that_names_them(tmp_path: Path) -> None:
    path = tmp_path / "plugbay.toml"
    path.write_text('[broker]\nurl = "tls://nats.example.com"\ncredentials = "my.creds"\nca_file = "ca.pem"\n')
    broker = load(path).broker
    assert broker is not None and broker.is_encrypted
    assert (broker.credentials, broker.ca_file) == (str(tmp_path / "my.creds"), str(tmp_path / "ca.pem"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topics = []", "url"),
        (f'{URL}\ntopic = ["a"]', "did you mean 'topics'?"),
        ('url = "http://127.0.0.1"', "must be a URL like nats://"),
        ('url = "nats://"', "must be a URL like nats://"),
        ('url = "nats://host:port"', "must be a URL like nats://"),
        ('url = "nats://a b"', "must be a URL like nats://"),
        ('url = "nats://me:hunter2@host"', "goes into credentials, token_env"),
        ('url = "nats://host/?token=hunter2"', "goes into credentials, token_env"),
        (f'{URL}\ntopics = ["a", "b..c"]', "'b..c' cannot be shared: it 'b..c' has an empty segment"),
        (f'{URL}\ntopics = ["a.>.b"]', "goes on after >"),
        (f'{URL}\ntopics = ["a.b*"]', "no broker carries"),
        (f'{URL}\ntopics = ["a b"]', "no broker carries"),
        (f'{URL}\ntopics = ["plugin.lifecycle.>"]', "about the plugins of one host"),
        (f'{URL}\ntopics = ["plugin.resource.changed"]', "about the plugins of one host"),
        (f'{URL}\nprefix = "plugbay"', "words with a dot after each"),
        (f'{URL}\nprefix = "a.*."', "words with a dot after each"),
        (f'{URL}\nprefix = "$SYS."', "words with a dot after each"),
        (f'{URL}\nuser = "me"', "go together"),
        (f'{URL}\npassword_env = "P"', "go together"),
        (f'{URL}\ntoken_env = "T"\ncredentials = "x.creds"', "not several"),
        (f'{URL}\nca_file = "ca.pem"', "for servers at tls://"),
    ],
)
def test_what_cannot_be_meant_is_said(text: str, words: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse(f"[broker]\n{text}")
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("topic", ["a", "a.b", "plugin.inbound.k", "plugin.lifecycles.x", "grüße.welt"])
def test_topics_that_can_be_shared(topic: str) -> None:
    assert topic_problem(topic) is None and pattern_problem(topic) is None


@pytest.mark.parametrize(
    "topic",
    [
        "a b",
        "a*.b",
        "a.b>",
        "a..b",
        "a.*",
        "",
        "a.\n",
        "plugin.lifecycle.p.up",
        RESOURCE_CHANGED,
        "é" * MAX_TOPIC_BYTES,
    ],
)
def test_topics_that_cannot(topic: str) -> None:
    assert topic_problem(topic)


def test_wildcards_are_whole_segments_of_patterns() -> None:
    for pattern in (">", "*", "a.*.c", "a.>", "plugin.>"):
        assert pattern_problem(pattern) is None


def test_a_topic_of_many_bytes_is_refused_for_its_bytes() -> None:
    assert "2,048 bytes" in (topic_problem("€" * 1000) or "")


def test_what_a_host_says_of_its_plugins_is_its_own() -> None:
    assert is_own(RESOURCE_CHANGED) and is_own("plugin.lifecycle.p.ready")
    assert not is_own("plugin.inbound.k")
