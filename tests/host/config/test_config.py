"""plugbay.toml: what it may say, and that a typo is an error with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.host.authorization.policy import Decision
from plugbay.host.config.config import Config, TimeoutOverrides, load, parse
from plugbay.host.config.time_factor import TIME_FACTOR
from plugbay.model.errors import ConfigInvalid
from plugbay.model.spec import Timeouts

WHOLE = """
[host]
log_dir = "logs"

[plugins."example.weather"]
enabled = false
grants = ["a", "b"]
env = { TZ = "UTC" }
inherit_env = ["HOME"]
timeouts = { call = 10, launch = 0.5 }
pool = 2
"""


def test_a_whole_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TIME_FACTOR)
    config = parse(WHOLE)
    plugin = config.plugin("example.weather")
    assert config.host.log_dir == "logs"
    assert plugin.decision() == Decision(False, frozenset({"a", "b"}))
    assert (plugin.env, plugin.inherit_env, plugin.pool) == ({"TZ": "UTC"}, ["HOME"], 2)
    assert plugin.timeouts.over(Timeouts(handshake=7)) == Timeouts(launch=0.5, handshake=7, call=10)


def test_a_plugin_without_a_section_is_undecided() -> None:
    assert Config().plugin("x").decision() == Decision(True, None)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('[plugins.p]\ngrant = ["a"]', 2, "did you mean 'grants'?"),
        ("[hosts]\n", 1, "did you mean 'host'?"),
        ("[plugins.p]\nenabled = 1", 2, "boolean"),
        ("[plugins.p]\n\ntimeouts = { call = 0 }", 3, "greater than 0"),
        ("[plugins.p]\ntimeouts = { cal = 1 }", 2, "did you mean 'call'?"),
        ('[plugins.p]\ngrants = ["a", " b"]', 2, "can never match"),
        ("[plugins.p]\npool = 65", 2, "less than or equal to 64"),
        ("[plugins.p]\nenv = { A = 1 }", 2, "string"),
        ('[plugins.p]\nenv = { "A=B" = "1" }', 2, "cannot be the name of a variable"),
        ('[plugins.p]\ninherit_env = ["A", ""]', 2, "cannot be the name of a variable"),
        ("\n\n[plugin.x]\npool = 1", 3, "did you mean 'plugins'?"),
        ("[plugins.a.b]\npool = 1", 1, 'quote it: [plugins."a.b"]'),
        ('[host]\nlog_level = "loud"', 2, "'trace', 'debug', 'info', 'warn' or 'error'"),
        ('[plugins.p]\nlog_level = "Info"', 2, "'trace', 'debug', 'info', 'warn' or 'error'"),
        ('[registries."http://r.test"]\nprivate = true', 1, "is not a registry; write it like registry.internal"),
        ('[registries."R.test:5000"]\nprivate = true', 1, "must be written r.test:5000"),
        ('[registries."r.test:0"]\nprivate = true', 1, "is not a registry"),
        ('[network]\nallow_private = ["localhost:80"]', 2, "an address and a port, like 127.0.0.1:8080"),
        ('[network]\nallow_private = ["10.0.0.0/8:80"]', 2, "an address and a port"),
        ('[network]\nallow_private = ["127.0.0.1:*"]', 2, "an address and a port"),
        ('[network]\nallow_public = ["127.0.0.1:1"]', 2, "unknown"),
        ("not toml", 1, "not TOML"),
    ],
    ids=str,
)
def test_a_problem_is_reported_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse(text)
    (problem,) = caught.value.problems
    assert problem.line == line
    assert words in problem.message


def test_every_problem_is_reported_at_once() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse("[plugins.p]\nenabled = 1\npool = -1\nunknown = 2")
    assert len(caught.value.problems) == 3


def test_a_log_folder_is_relative_to_its_config_and_may_be_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for written, meant in (("logs", str(tmp_path / "logs")), ("~/logs", "/home/me/logs"), ("/var/log/x", "/var/log/x")):
        (tmp_path / "plugbay.toml").write_text(f'[host]\nlog_dir = "{written}"\n')
        assert load(tmp_path / "plugbay.toml").host.log_dir == meant


def test_the_home_of_an_unknown_user_is_an_error_and_a_program_without_a_slash_is_a_name(tmp_path: Path) -> None:
    file = tmp_path / "plugbay.toml"
    file.write_text('[plugins.p.sandbox]\nread = ["~no-such-user/x"]\n')
    with pytest.raises(ConfigInvalid, match="home of an unknown user"):
        load(file)
    file.write_text('[plugins.p.sandbox]\nrun = ["git", "bin/git"]\n')
    assert load(file).plugin("p").sandbox.run == ["git", str(tmp_path / "bin" / "git")]


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="No such file"):
        load(tmp_path / "missing.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigInvalid, match=r"bad\.toml cannot be used"):
        load(tmp_path / "bad.toml")


def test_the_network_is_closed_to_private_addresses_except_for_single_ones() -> None:
    assert Config().network.allow_private == []
    pairs = ["127.0.0.1:8080", "[::1]:443"]
    assert parse(f"[network]\nallow_private = {pairs}\n").network.allow_private == pairs


def test_the_default_log_level_is_info() -> None:
    assert (Config().host.log_level, Config().plugin("p").log_level) == ("info", None)
    config = parse('[host]\nlog_level = "error"\n[plugins.p]\nlog_level = "trace"\n')
    assert (config.host.log_level, config.plugin("p").log_level) == ("error", "trace")


@pytest.mark.parametrize(("factor", "handshake"), [("1", 2.0), ("2.5", 5.0)])
def test_on_a_slow_machine_timeouts_of_contracts_grow_and_those_of_the_operator_do_not(
    monkeypatch: pytest.MonkeyPatch, factor: str, handshake: float
) -> None:
    monkeypatch.setenv(TIME_FACTOR, factor)
    times = TimeoutOverrides(call=7.0).over(Timeouts(handshake=2.0, call=5.0))
    assert (times.handshake, times.call) == (handshake, 7.0)
    assert TimeoutOverrides().over_patience({"Render": 2.0}) == {"Render": handshake}
    assert TimeoutOverrides(call=7.0).over_patience({"Render": 2.0}) == {}
