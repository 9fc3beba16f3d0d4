"""Sections of plugbay.toml: every mistake is reported with its line, and a typo allows nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from plugbay.host.admin import operating
from plugbay.host.config.config import load, parse
from plugbay.host.config.sections import (
    MAX_TOPIC_BYTES,
    QUEUE_SECONDS,
    BrokerConfig,
    PluginSandbox,
    ProviderConfig,
    RetentionConfig,
    SandboxConfig,
    ServerConfig,
    days,
    is_own,
    names_problem,
    parse_endpoint,
    pattern_problem,
    size,
    topic_problem,
)
from plugbay.host.host import Host
from plugbay.host.inbound.handler import RESOURCE_CHANGED
from plugbay.host.services.llm.chat import ChatRequest
from plugbay.model.errors import ConfigInvalid
from plugbay.process.sandbox.policy import MIB, Endpoint, Limits, Network, Reach
from tests.architecture import ROOT
from tests.support.loops import Run
from tests.support.openai_server import OpenAiServer, completion
from tests.support.requirements import requirement

WHOLE = """
[sandbox]
require = true
require_limits = true
uids = "100000-165535"
read = ["/opt/tools"]

[sandbox.limits]
memory = "512 MiB"
cpu = 2

[plugins."x".sandbox]
read = ["/srv/data"]
write = ["/srv/out"]
run = ["/opt/tools/bin/convert"]
network = ["api.example.com:443", "[2001:db8::1]:*"]
limits = { memory = "1 GiB", tmp = 8388608 }
"""


def test_a_whole_file_is_read() -> None:
    config = parse(WHOLE)
    common, own = config.sandbox, config.plugin("x").sandbox
    assert (common.require, common.require_limits, common.uid_range) == (True, True, (100000, 165535))
    assert (common.read, own.read, own.write) == (["/opt/tools"], ["/srv/data"], ["/srv/out"])
    assert own.run == ["/opt/tools/bin/convert"]
    assert own.reach() == Network(Reach.LISTED, (Endpoint("api.example.com", 443), Endpoint("2001:db8::1", None)))
    usual = common.limits.over(Limits())
    assert usual == Limits(memory=512 * MIB, cpu=2.0)
    assert own.limits.over(usual) == Limits(memory=1024 * MIB, cpu=2.0, tmp=8 * MIB)


def test_without_a_word_nothing_is_required_opened_or_changed() -> None:
    config = parse("[plugins.p]\n")
    own = config.plugin("p").sandbox
    assert (config.sandbox, own) == (SandboxConfig(), PluginSandbox())
    assert (config.sandbox.require, config.sandbox.require_limits, config.sandbox.read) == (False, False, [])
    assert config.sandbox.uid_range == (2_000_000_000, 2_134_217_727)
    assert (own.wanted, own.off, own.reach(), own.limits.over(Limits())) == (False, None, Network(), Limits())


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('[plugins.p]\nsandbox = "off"', 2, 'write [plugins."x".sandbox] with off = "the reason why"'),
        ("[plugins.p]\nsandbox = true", 2, "got True"),
        ('[plugins.p.sandbox]\noff = ""', 2, "give the reason"),
        ('[plugins.p.sandbox]\noff = "a\\nb"', 2, "in one line"),
        ("[plugins.p.sandbox]\noff = true", 2, "string"),
        ('[plugins.p.sandbox]\noff = "ours"\nread = ["/x"]', 1, "cannot have read"),
        ("[plugins.p.sandbox]\non = false", 2, "True"),
        ("[plugins.p.sandbox]", 1, "an empty section has no effect"),
        ('[plugins.p.sandbox]\nreads = ["/x"]', 2, "did you mean 'read'?"),
        ('[plugins.p.sandbox]\nread = ["/x/../y"]', 2, "must not contain '..'"),
        ('[plugins.p.sandbox]\nwrite = [""]', 2, "is not a path"),
        ('[plugins.p.sandbox]\nrun = ["a\\u0000"]', 2, "is not a path"),
        ('[plugins.p.sandbox]\nnetwork = ["api.example.com"]', 2, "a host and a port"),
        ('[plugins.p.sandbox]\nnetwork = ["*.example.com:443"]', 2, "a host and a port"),
        ('[plugins.p.sandbox]\nnetwork = ["*", "a.example:1"]', 2, "already allows everything"),
        ('[plugins.p.sandbox]\nnetwork = "*"', 2, "list"),
        ('[plugins.p.sandbox]\nlimits = { memory = "lots" }', 2, "is not a size"),
        ("[plugins.p.sandbox]\nlimits = { memory = 1 }", 2, "greater than or equal to"),
        ("[plugins.p.sandbox]\nlimits = { procs = 1 }", 2, "unknown key"),
        ("[plugins.p.sandbox]\nlimits = { cpu = 0 }", 2, "greater than or equal to"),
        ('[plugins.p.sandbox]\noff = "ours"\nlimits = { open_files = 99 }', 1, "can be in limits of [plugins"),
        ('[plugins.p]\nlimits = { memory = "1 GiB" }', 2, "unknown key"),
        ("[plugins.p]\nlimits = { open_files = 3 }", 2, "greater than or equal to"),
        ("[sandbox]\nrequired = true", 2, "did you mean 'require'?"),
        ('[sandbox]\nuids = "0-5"', 2, "not a range of user numbers"),
        ('[sandbox]\nuids = "5000-2000"', 2, "not a range of user numbers"),
        ('[sandbox]\nuids = "2000-4294967295"', 2, "not a range of user numbers"),
        ("[sandbox]\nuids = 2000", 2, "string"),
        ('[sandbox.limits]\nmemory = "-1 MiB"', 2, "is not a size"),
    ],
    ids=str,
)
def test_a_problem_is_reported_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse(text)
    (problem,) = caught.value.problems
    assert problem.line == line
    assert words in problem.message


@pytest.mark.parametrize(
    ("section", "wanted"),
    [
        ("on = true", True),
        ('read = ["/x"]', True),
        ("network = []", True),
        ("limits = { processes = 9 }", True),
        ('off = "ours"', False),
    ],
)
def test_options_of_confinement_imply_confinement(section: str, wanted: bool) -> None:
    assert parse(f"[plugins.p.sandbox]\n{section}").plugin("p").sandbox.wanted is wanted


@pytest.mark.parametrize(
    ("entry", "network"),
    [
        ("*", Network(Reach.ANY)),
        ("host", Network(Reach.HOST)),
        ("A.example:*", Network(Reach.LISTED, (Endpoint("a.example"),))),
    ],
)
def test_the_words_for_the_network(entry: str, network: Network) -> None:
    assert parse(f'[plugins.p.sandbox]\nnetwork = ["{entry}"]').plugin("p").sandbox.reach() == network


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:0", "a:65536", "a:x", "::1:80", "[::1]", "127.1:80", "a b:1"])
def test_an_invalid_endpoint_opens_nothing(text: str) -> None:
    with pytest.raises(ValueError, match="a host and a port"):
        parse_endpoint(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [("256 MiB", 256 * MIB), ("1GiB", 1024 * MIB), ("5 mb", 5_000_000), (" 7 ", 7), ("3 B", 3), ("2 KiB", 2048)],
)
def test_a_size_may_have_a_unit(text: str, number: int) -> None:
    assert size(text) == number


def test_a_size_that_is_a_number_is_one() -> None:
    assert size(5) == 5


def test_relative_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    file = tmp_path / "plugbay.toml"
    file.write_text('[sandbox]\nread = ["r"]\n[plugins.p.sandbox]\nread = ["~/a", "b"]\nwrite = ["/c"]\n[plugins.q]\n')
    config = load(file)
    own = config.plugin("p").sandbox
    assert config.sandbox.read == [str(tmp_path / "r")]
    assert (own.read, own.write, own.run) == (["/home/ada/a", str(tmp_path / "b")], ["/c"], [])
    assert not config.plugin("q").sandbox.wanted


@requirement("mcp:host-sources")
def test_a_server_is_a_command_with_its_options(tmp_path: Path) -> None:
    file = tmp_path / "plugbay.toml"
    file.write_text('[mcp.x]\ncommand = ["run", "-v"]\nenv = { A = "b" }\ncwd = "sub"\nera = "modern"\n')
    loaded = load(file)
    server = loaded.mcp["x"]
    assert (server.command, server.env, server.cwd) == (["run", "-v"], {"A": "b"}, str(tmp_path / "sub"))
    assert (loaded.declared_eras, loaded.folder) == ({"x": "modern"}, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "[mcp.x]",
        "[mcp.x]\ncommand = []",
        '[mcp.x]\ncommand = ["a"]\nbundle = "b"',
        '[mcp.x]\nbundle = "b"\ncwd = "c"',
        '[mcp.x]\ncommand = ["a"]\nera = "stone"',
        '[mcp.x]\ncommand = ["a"]\nenv = { "A=B" = "c" }',
        '[mcp.x]\ncommand = ["a"]\nurl = "https://x.example"',
        '[mcp.x]\nurl = "https://x.example"\nenv = { A = "b" }',
        '[mcp.x]\nurl = "https://x.example"\ncwd = "/"',
        '[mcp.x]\ncommand = ["a"]\nheaders = { A = "b" }',
        '[mcp.x]\ncommand = ["a"]\noauth = { client_id = "b" }',
        '[mcp.x]\nurl = "https://x.example"\noauth = { client_id = "b", client_secret = "plain" }',
        '[mcp.x]\nurl = "https://x.example"\noauth = { client_secret = "secret://s" }',
        '[mcp.x]\nurl = "https://x.example"\noauth = { client_id_url = "http://x.example" }',
        '[mcp.x]\nurl = "https://x.example"\noauth = { redirect_port = 0 }',
        '[mcp."a/b"]\ncommand = ["a"]',
    ],
)
def test_an_invalid_server_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid):
        parse(text)


def test_a_name_is_a_plugins_id() -> None:
    server = ServerConfig(command=["a"])
    assert names_problem({"ok": server}) is None
    assert "'..'" in str(names_problem({"..": server}))


def test_each_kind_has_its_own_time_and_an_omitted_one_its_default() -> None:
    told = parse('[retention]\ncalls = "12 hours"\ninvocations = "1 day"\naudit = "365 days"\nevents = "forever"')
    kept = told.retention.model_dump()
    assert kept == RetentionConfig().model_dump() | {
        "calls": 43_200.0,
        "invocations": days(1),
        "audit": days(365),
        "events": None,
    }


def test_the_default_retention_is_the_documented_one() -> None:
    assert RetentionConfig() == parse("").retention
    in_days = {kind: kept and kept / days(1) for kind, kept in RetentionConfig().model_dump().items()}
    assert in_days == {
        "calls": 30,
        "invocations": 90,
        "deliveries": 90,
        "dead_letters": None,
        "events": 90,
        "audit": None,
    }


@pytest.mark.parametrize(
    "value",
    ['"0 days"', '"30"', "30", '"1 minute"', '"-1 days"', '"36501 days"', '""', "true", '"1.5 days"', '"Forever"'],
)
def test_an_invalid_time_is_refused_with_an_example(value: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"retention\.calls.*90 days"):
        parse(f"[retention]\ncalls = {value}")


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="invocations"):
        parse('[retention]\ninvocation = "30 days"')


def test_another_time_takes_effect_with_the_next_start() -> None:
    changed = parse('[retention]\ncalls = "1 day"')
    assert asyncio.run(operating.apply(Host([]), changed)).restart == ("retention",)


URL = 'url = "nats://127.0.0.1:4222"'


def test_a_broker_shares_nothing_until_topics_are_named() -> None:
    broker = parse(f"[broker]\n{URL}").broker
    assert broker == BrokerConfig(url="nats://127.0.0.1:4222")
    assert (broker.topics, broker.prefix, broker.is_encrypted) == ([], "plugbay.events.", False)
    assert parse("").broker is None


def test_the_example_of_the_documentation_is_one() -> None:
    page = (ROOT / "docs" / "how-to" / "several-hosts.md").read_text()
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
        ('url = "nats://me:hunter2@host"', "put the credentials into credentials, token_env"),
        ('url = "nats://host/?token=hunter2"', "put the credentials into credentials, token_env"),
        (f'{URL}\ntopics = ["a", "b..c"]', "'b..c' cannot be shared: it 'b..c' has an empty segment"),
        (f'{URL}\ntopics = ["a.>.b"]', "continues after >"),
        (f'{URL}\ntopics = ["a.b*"]', "brokers do not allow"),
        (f'{URL}\ntopics = ["a b"]', "brokers do not allow"),
        (f'{URL}\ntopics = ["plugin.lifecycle.>"]', "about the plugins of this host"),
        (f'{URL}\ntopics = ["plugin.resource.changed"]', "about the plugins of this host"),
        (f'{URL}\nprefix = "plugbay"', "words with a dot after each"),
        (f'{URL}\nprefix = "a.*."', "words with a dot after each"),
        (f'{URL}\nprefix = "$SYS."', "words with a dot after each"),
        (f'{URL}\nuser = "me"', "go together"),
        (f'{URL}\npassword_env = "P"', "go together"),
        (f'{URL}\ntoken_env = "T"\ncredentials = "x.creds"', "not several"),
        (f'{URL}\nca_file = "ca.pem"', "for servers at tls://"),
    ],
)
def test_an_impossible_value_is_reported(text: str, words: str) -> None:
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


def test_topics_about_the_plugins_of_a_host_are_its_own() -> None:
    assert is_own(RESOURCE_CHANGED) and is_own("plugin.lifecycle.p.ready")
    assert not is_own("plugin.inbound.k")


LOCAL = {"kind": "openai", "base_url": "http://localhost:11434/v1"}
KEY = "sk-0123456789abcdef"


def provider_config(**fields: Any) -> ProviderConfig:
    return ProviderConfig.model_validate({**LOCAL, **fields}, strict=True)


def test_the_least_that_can_be_said() -> None:
    provider = provider_config().build("local", {})
    assert repr(provider) == "OpenAiProvider('local', 'http://localhost:11434/v1')"
    assert provider.models == ()


def test_all_that_can_be_said() -> None:
    whole = provider_config(
        api_key_env="EXAMPLE_KEY",
        models=["large", "small"],
        timeout=5,
        stream_timeout=50.5,
        idle_timeout=3,
        max_retries=0,
        token_limit_field="max_completion_tokens",
    )
    assert whole.build("example", {"EXAMPLE_KEY": KEY}).models == ("large", "small")


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "anthropic"},
        {"base_url": "localhost"},
        {"base_url": "https://user:hunter2@localhost"},
        {"api_key": KEY},
        {"timeout": 0},
        {"timeout": 3601},
        {"max_retries": 11},
        {"models": "large"},
        {"token_limit_field": "tokens"},
    ],
)
def test_an_invalid_provider_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        provider_config(**fields)
    assert len(caught.value.errors()) == 1


def test_the_key_is_read_from_the_environment_and_trimmed(run: Run) -> None:
    async def main() -> None:
        async with OpenAiServer(completion()) as server:
            provider = provider_config(base_url=server.url, api_key_env="EXAMPLE_KEY").build(
                "x", {"EXAMPLE_KEY": f" {KEY}\n"}
            )
            await provider.chat(ChatRequest("m", [{"role": "user", "content": "hi"}]))
            assert server.seen[0].headers["authorization"] == f"Bearer {KEY}"
            await provider.close()

    run(main)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, "EXAMPLE_KEY is not set"),
        ({"EXAMPLE_KEY": ""}, "EXAMPLE_KEY is not set"),
        ({"EXAMPLE_KEY": f"{KEY}\u00e9"}, "EXAMPLE_KEY is not printable ASCII"),
        ({"EXAMPLE_KEY": f"{KEY}\nx"}, "EXAMPLE_KEY is not printable ASCII"),
    ],
)
def test_a_missing_key_is_reported_at_once_and_never_shown(environ: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        provider_config(api_key_env="EXAMPLE_KEY").build("example", environ)
    (problem,) = caught.value.problems
    assert problem.path == "llm.providers.example.api_key_env"
    assert words in problem.message
    assert KEY not in str(caught.value)


def test_the_queue_of_a_server_is_a_second_unless_the_operator_says_otherwise() -> None:
    assert parse("").serve.queue_seconds is None and QUEUE_SECONDS == 1.0
    assert parse("[serve]\nqueue_seconds = 30").serve.queue_seconds == 30


@pytest.mark.parametrize("value", ["0", "-1", "601", "nan", '"long"'])
def test_a_queue_without_end_or_without_time_is_refused(value: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"serve\.queue_seconds"):
        parse(f"[serve]\nqueue_seconds = {value}")
