"""What plugbay.toml may say about confinement: every mistake has its line, and nothing is opened by a typo."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.host.config.config import load, parse
from plugbay.host.config.sandbox import PluginSandbox, SandboxConfig, door, size
from plugbay.model.errors import ConfigInvalid
from plugbay.process.sandbox.policy import MIB, Endpoint, Limits, Network, Reach

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
        ('[plugins.p.sandbox]\noff = ""', 2, "say why"),
        ('[plugins.p.sandbox]\noff = "a\\nb"', 2, "in one line"),
        ("[plugins.p.sandbox]\noff = true", 2, "string"),
        ('[plugins.p.sandbox]\noff = "ours"\nread = ["/x"]', 1, "no use for read"),
        ("[plugins.p.sandbox]\non = false", 2, "True"),
        ("[plugins.p.sandbox]", 1, "an empty section confines nobody"),
        ('[plugins.p.sandbox]\nreads = ["/x"]', 2, "did you mean 'read'?"),
        ('[plugins.p.sandbox]\nread = ["/x/../y"]', 2, "must not contain '..'"),
        ('[plugins.p.sandbox]\nwrite = [""]', 2, "is no path"),
        ('[plugins.p.sandbox]\nrun = ["a\\u0000"]', 2, "is no path"),
        ('[plugins.p.sandbox]\nnetwork = ["api.example.com"]', 2, "a host and a port"),
        ('[plugins.p.sandbox]\nnetwork = ["*.example.com:443"]', 2, "a host and a port"),
        ('[plugins.p.sandbox]\nnetwork = ["*", "a.example:1"]', 2, "leaves nothing for other entries"),
        ('[plugins.p.sandbox]\nnetwork = "*"', 2, "list"),
        ('[plugins.p.sandbox]\nlimits = { memory = "lots" }', 2, "is no size"),
        ("[plugins.p.sandbox]\nlimits = { memory = 1 }", 2, "greater than or equal to"),
        ("[plugins.p.sandbox]\nlimits = { procs = 1 }", 2, "unknown key"),
        ("[plugins.p.sandbox]\nlimits = { cpu = 0 }", 2, "greater than or equal to"),
        ('[plugins.p.sandbox]\noff = "ours"\nlimits = { open_files = 99 }', 1, "can be in limits of [plugins"),
        ('[plugins.p]\nlimits = { memory = "1 GiB" }', 2, "unknown key"),
        ("[plugins.p]\nlimits = { open_files = 3 }", 2, "greater than or equal to"),
        ("[sandbox]\nrequired = true", 2, "did you mean 'require'?"),
        ('[sandbox]\nuids = "0-5"', 2, "no range of user numbers"),
        ('[sandbox]\nuids = "5000-2000"', 2, "no range of user numbers"),
        ('[sandbox]\nuids = "2000-4294967295"', 2, "no range of user numbers"),
        ("[sandbox]\nuids = 2000", 2, "string"),
        ('[sandbox.limits]\nmemory = "-1 MiB"', 2, "is no size"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_with_its_line(text: str, line: int, words: str) -> None:
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
def test_who_says_how_to_confine_wants_to_confine(section: str, wanted: bool) -> None:
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
def test_what_is_no_host_and_port_opens_nothing(text: str) -> None:
    with pytest.raises(ValueError, match="a host and a port"):
        door(text)


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
