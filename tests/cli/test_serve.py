"""`plugbay serve`: refusals before the start, and the report when it is up."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

import httpx2
import pytest

from tests.cli.conftest import Run, environment
from tests.packages.builders import pack
from tests.server.test_server import served
from tests.support.commands import Command, plugbay
from tests.support.kaged import write_kaged_plugin
from tests.support.patience import PATIENCE, until_blocking
from tests.support.plugins import write_plugin


@pytest.mark.parametrize("listen", ["8787", "localhost", "127.0.0.1:99999", "127.0.0.1:x"])
def test_what_is_no_address_is_a_usage_error(run: Run, listen: str) -> None:
    done = run("serve", "--listen", listen)
    assert done.code == 2 and "is not an address like 127.0.0.1:8787" in done.err


def test_other_machines_are_let_in_only_when_they_are_named(run: Run) -> None:
    done = run("serve", "--listen", "0.0.0.0:0")
    assert done.code == 2 and "--public NAME" in done.err


def test_a_folder_that_is_not_there_and_a_config_that_cannot_be_read_are_reported(run: Run, cwd: Path) -> None:
    assert run("serve", "nowhere", "--listen", "127.0.0.1:0").code == 4
    (cwd / "plugbay.toml").write_text("[host]\nlog_levle = 1\n")
    assert run("serve", "--listen", "127.0.0.1:0").code == 3


@pytest.mark.parametrize(
    ("more", "folder", "problem"),
    [("", True, "is a folder"), ('[mcp.clock]\ncommand = ["clock"]\n', False, "[mcp.clock] is a command")],
)
def test_nodes_run_no_folders_and_no_commands(run: Run, cwd: Path, more: str, folder: bool, problem: str) -> None:
    (cwd / "plugbay.toml").write_text(f'[cluster]\nnats = ["nats://127.0.0.1:1"]\n{more}')
    (cwd / "plugins").mkdir()
    done = run("serve", *(["plugins"] if folder else []), "--listen", "127.0.0.1:0")
    assert done.code == 2 and problem in done.err and "verified packages only" in done.err


def test_a_database_of_another_kind_is_refused(run: Run) -> None:
    done = run("serve", "--listen", "127.0.0.1:0", "--database", "mysql://host/db")
    assert done.code == 1 and "SQLite or PostgreSQL" in done.err


def test_an_unreachable_database_is_reported_with_a_hint(run: Run) -> None:
    url = "postgresql+asyncpg://nobody@127.0.0.1:1/nothing"
    done = run("serve", "--listen", "127.0.0.1:0", "--database", url)
    assert (done.code, "no connection to it" in done.err) == (1, True)
    assert "hint:  check that the server runs and that --database is its URL\n" in done.err


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_port_that_is_taken_is_reported(run: Run, words: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("serve", "--listen", address, *words)
    assert done.code == 1
    said = done.json["failure"]["message"] if words else done.err
    assert f"cannot listen on {address}: Address already in use" in said


def test_a_damaged_database_is_reported_with_its_place_and_a_url_is_not_repeated(run: Run, cwd: Path) -> None:
    (cwd / "kept").mkdir()
    (cwd / "kept" / "plugbay.db").write_text("not a database " * 100)
    done = run("serve", "--listen", "127.0.0.1:0", "--data", "kept")
    assert (done.code, f"the database in {cwd / 'kept'} cannot be used: " in done.err) == (1, True)
    done = run("serve", "--listen", "127.0.0.1:0", "--database", "mysql://me:sesame@host/db")
    assert (done.code, "sesame" in done.err) == (1, False)


def test_a_file_is_no_place_for_data(run: Run, cwd: Path) -> None:
    (cwd / "file").write_text("")
    done = run("serve", "--data", "file")
    assert (done.code, "file is a file; name a folder" in done.err) == (2, True)


def test_the_line_for_programs_says_where_to_find_what(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "p")
    with served(tmp_path, "plugins", "--data", "kept") as server:
        facts = server.facts
        assert facts["pid"] == server.process.pid and facts["plugins"] == 1
        assert facts["data"] == str(tmp_path / "kept")
        assert (tmp_path / "kept/plugbay.db").exists()
        assert server.end() == 0


def listed(client: httpx2.Client) -> dict[str, list[str]]:
    """Ids of the plugins, and names of the folders that could not be loaded."""
    answer = client.get("/api/v1/plugins").json()
    names = {"plugins": [each["id"] for each in answer["plugins"]]}
    return names | {"invalid": [Path(each["folder"]).name for each in answer["invalid"]]}


def test_a_server_of_an_empty_folder_takes_in_what_is_put_there(tmp_path: Path) -> None:
    (tmp_path / "plugins" / "broken").mkdir(parents=True)
    (tmp_path / "plugins" / "broken" / "rterm-plugin.json").write_text("{")
    with served(tmp_path, "plugins", "--grant-all") as server, server.client() as client:
        assert server.facts["plugins"] == 0
        assert [Path(each["folder"]).name for each in server.facts["invalid"]] == ["broken"]
        write_plugin(tmp_path / "plugins", "p")
        until_blocking(lambda: listed(client) == {"plugins": ["p"], "invalid": ["broken"]})
        called = client.post("/api/v1/calls", json={"export": "p/t", "input": {"a": 1}}).json()
        assert called["output"] == {"a": 1}
        shutil.rmtree(tmp_path / "plugins" / "p")
        shutil.rmtree(tmp_path / "plugins" / "broken")
        until_blocking(lambda: listed(client) == {"plugins": [], "invalid": []})
        assert server.end() == 0


def test_commands_know_the_plugins_of_the_server_by_id_and_the_server_by_its_address(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "p")
    with served(tmp_path, "plugins", "--data", "kept") as server:
        homes = {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("STATE", "DATA", "CONFIG", "CACHE")}

        def ask(*words: str) -> str:
            done = plugbay(*words, cwd=tmp_path, env=environment(tmp_path, **homes))
            assert done.returncode == 0, done.stderr
            return done.stdout.decode()

        assert json.loads(ask("inspect", "p", "--json"))["id"] == "p"
        assert json.loads(ask("config", "show", "p", "--json"))["plugin"] == "p"
        address = server.facts["url"].removeprefix("http://")
        assert "p " in ask("ps", "--server", address)
        page = httpx2.get(f"{server.facts['url']}/nowhere", headers={"accept": "text/html"})
        assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "there is no route with this path" in page.text
        for path, accept in (("/nowhere", "application/json"), ("/v1/nowhere", "text/html")):
            answer = httpx2.get(f"{server.facts['url']}{path}", headers={"accept": accept})
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "route.not_found")
        assert server.end() == 0


def test_without_a_folder_the_installed_plugins_are_served_also_those_that_are_installed_later(tmp_path: Path) -> None:
    package = pack(tmp_path, "1.0.0", capabilities=["files"])
    with served(tmp_path) as server, server.client() as client:
        homes = {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("STATE", "DATA", "CONFIG", "CACHE")}
        done = plugbay("install", str(package), "--allow-unsigned", cwd=tmp_path, env=environment(tmp_path, **homes))
        assert done.returncode == 0, done.stderr
        until_blocking(lambda: listed(client)["plugins"] == ["acme.notes"])
        (shown,) = client.get("/api/v1/plugins").json()["plugins"]
        assert (shown["state"], shown["missing"]) == ("pending", ["files"])
        client.get(client.post("/api/v1/dashboard-links").json()["url"])
        assert "acme.notes" in client.get("/installed").text, "the same store in the browser"
        assert server.end() == 0


def test_a_plugin_that_sees_the_project_does_not_see_the_data_of_the_server(tmp_path: Path) -> None:
    lists = "def tool(name, params, m):\n    reply(m, {path: sorted(os.listdir(path)) for path in params['paths']})\n"
    write_kaged_plugin(tmp_path / "plugins", "spy", lists)
    tmp_path.chmod(0o755)
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "note").touch()
    times = "".join(f"{name} = 40\n" for name in ("launch", "handshake", "call"))
    (tmp_path / "plugbay.toml").write_text(f'[project]\nroot = "."\n[plugins.spy.timeouts]\n{times}')
    url = f"sqlite:///{tmp_path}/base/plugbay.db"
    with served(tmp_path, "plugins", "--data", "kept", "--database", url) as server, server.client() as client:
        (tmp_path / "kept").chmod(0o755)  # not its mode keeps the plugin out
        paths = [str(tmp_path / name) for name in ("open", "kept", "state/plugbay")]
        called = client.post("/api/v1/calls", json={"export": "spy/echo", "input": {"paths": paths}}).json()
        assert called["output"] == {paths[0]: ["note"], paths[1]: [], paths[2]: ["plugins"]}
        assert (tmp_path / "kept" / "operator.token").exists()
        shown = client.get("/api/v1/plugins/spy").json()["sandbox"]
        assert (shown["confined"], str(tmp_path) in shown["policy"]["read"]) == ("confined", True)
        assert server.end() == 0
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "base").iterdir()} == {0o600}


def test_a_dashboard_link_is_printed_for_people(cwd: Path, tmp_path: Path) -> None:
    (out, say), (err, tell) = os.pipe(), os.pipe()
    with open(os.devnull) as nothing, open(out), open(err) as told:
        words = ["serve", "--listen", "127.0.0.1:0", "--data", "kept"]
        process = Command(words, [nothing.fileno(), say, tell], cwd, environment(tmp_path))
        for stream in (say, tell):
            os.close(stream)
        try:
            line = next(line.split() for line in told if line.split()[:1] == ["dashboard"])
            assert next(told).split()[-3:] == ["a", "new", "one"]
            with httpx2.Client() as browser:
                assert browser.get(line[1]).status_code == 303
                assert browser.get(line[1]).status_code == 401
        finally:
            process.terminate()
            told.read()
        assert process.wait(PATIENCE) == 0
