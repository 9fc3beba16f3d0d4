"""Hosts that live as long as one command. The tests of commands cover signals."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plugbay import Host
from plugbay.cli import local_host
from plugbay.cli.exit_codes import Refusal
from plugbay.cli.local_host import could_be_id
from plugbay.host.config.config import Config, parse
from plugbay.server.occupancy import RunningServer, announce
from tests.cli.conftest import MakePlugin, Run, write_manifest
from tests.support.ainb import write_ainb_plugin
from tests.support.patience import PATIENCE


@pytest.fixture(autouse=True)
def here(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cwd)
    for name in ("state", "data", "config", "cache"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(cwd / "xdg" / name))


def test_plugins_are_found_in_a_folder_of_them_and_in_their_own(cwd: Path, make_plugin: MakePlugin) -> None:
    plugin = make_plugin()
    for place in (Path("plugins"), plugin, plugin / "rterm-plugin.json"):
        found = local_host.discover_in(place)
        assert [item.spec.id for item in found if item.spec] == ["example.echo"]


@pytest.mark.parametrize(
    ("place", "status", "words"),
    [("nowhere", 4, "there is no folder nowhere"), ("empty", 4, "no plugin in empty"), ("bad", 3, "cannot be used")],
)
def test_a_place_without_a_usable_plugin_is_refused(cwd: Path, place: str, status: int, words: str) -> None:
    (cwd / "empty").mkdir()
    write_manifest(cwd / "bad" / "x", "{")
    with pytest.raises(Refusal, match=words) as caught:
        local_host.discover_in(Path(place))
    assert caught.value.status == status


def test_an_unknown_id_is_refused_and_a_known_one_is_not(cwd: Path, make_plugin: MakePlugin) -> None:
    found = local_host.discover_in(make_plugin())
    local_host.check_id("example.echo", found)
    with pytest.raises(Refusal, match=r"did you mean 'example\.echo'"):
        local_host.check_id("example.ecko", found)


def test_an_id_is_searched_in_the_given_folder_or_among_installed_plugins(cwd: Path, make_plugin: MakePlugin) -> None:
    plugin = cwd / make_plugin()
    assert (local_host.find_home("example.echo", None), local_host.find_home("x", Path("there"))) == (
        None,
        Path("there"),
    )
    store = cwd / "xdg" / "data" / "plugbay" / "plugins"
    store.mkdir(parents=True)
    plugin.rename(store / "example.echo")
    assert local_host.find_home("example.echo", None) == store
    assert local_host.find_home("example.ecko", None) is None
    found = local_host.find_installed("example.echo")
    assert found is not None and found.root == store / "example.echo"


def test_run_with_returns_the_result_of_the_work_and_stops_the_host(cwd: Path, make_plugin: MakePlugin) -> None:
    host = local_host.make_host(local_host.discover_in(make_plugin()), None, grants=None, grant_all=False)

    async def work(host: Host) -> object:
        return await host.call("echo", {"text": "hi"})

    assert local_host.run_with(host, work) == {"text": "hi"}
    assert host.plugins()[0].state == "stopped"


def test_run_with_raises_the_exception_of_the_work(cwd: Path, make_plugin: MakePlugin) -> None:
    host = local_host.make_host(local_host.discover_in(make_plugin()), None, grants=(), grant_all=True)

    async def work(host: Host) -> None:
        raise LookupError("not here")

    with pytest.raises(LookupError, match="not here"):
        local_host.run_with(host, work)
    assert host.plugins()[0].state == "stopped"


@pytest.mark.parametrize("eager", [False, True])
def test_plugins_that_start_with_their_host_do_so_only_when_that_is_wanted(cwd: Path, eager: bool) -> None:
    root = write_ainb_plugin(cwd, lifecycle={"spawn": "eager"})
    host = local_host.make_host(local_host.discover_in(root), None, grants=(), grant_all=True, eager=eager)

    async def settled(host: Host) -> tuple[bool, int]:
        return await host.settled(PATIENCE), host.plugins()[0].generation

    assert local_host.run_with(host, settled) == (True, int(eager))


def test_logs_are_where_the_system_or_the_operator_wants_them(cwd: Path, make_plugin: MakePlugin) -> None:
    found = local_host.discover_in(make_plugin(answer="echo noted >&2\n" + """reply '"status":"ok","output":1' """))
    config = Config.model_validate({"host": {"log_dir": str(cwd / "mine")}})

    async def work(host: Host) -> object:
        return await host.call("echo", {})

    local_host.run_with(local_host.make_host(found, config, grants=None, grant_all=False), work)
    assert "noted" in (cwd / "mine" / "example.echo.log").read_text()
    assert not list((cwd / "xdg").rglob("*.log"))
    local_host.run_with(local_host.make_host(found, None, grants=None, grant_all=False), work)
    assert list((cwd / "xdg").rglob("example.echo.log"))


def test_only_a_host_that_stays_is_joined_with_others() -> None:
    config = parse('[broker]\nurl = "nats://127.0.0.1:1"\ntopics = ["a"]')
    assert local_host.make_host([], config, grants=()).broker is None
    assert local_host.make_host([], config, grants=(), joins=True).broker is not None
    assert config.broker is not None


def test_a_folder_with_the_name_of_a_plugin_is_not_taken_for_it_in_silence(
    run: Run, make_plugin: MakePlugin, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = cwd / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    (cwd / make_plugin()).rename(cwd / "echo")
    assert not could_be_id("echo")
    with announce(state / "plugbay", RunningServer("http://127.0.0.1:1", os.getpid(), "token", "data")):
        assert could_be_id("echo")
        assert not any(map(could_be_id, ("./echo", "plugins/echo", ".")))
        words = "using a host of this command for the folder echo, not the running server\n"
        assert words in run("call", "echo", "echo", XDG_STATE_HOME=str(state)).err
        assert run("call", "./echo", "echo", "--json", XDG_STATE_HOME=str(state)).err == ""
