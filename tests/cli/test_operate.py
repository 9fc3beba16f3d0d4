"""Commands of operators against a running server."""

from __future__ import annotations

import json
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from rich.console import Console

import plugbay as package
from plugbay.cli import operate as module
from plugbay.cli.operate import _age, show
from plugbay.cli.render import output
from plugbay.process.sandbox.cgroup import DEGRADED
from tests.cli.conftest import MakePlugin, Run, wait_until
from tests.packages.builders import key, pack, sign, trust
from tests.server.test_server import served
from tests.support.ainb import write_ainb_plugin
from tests.support.kaged import write_kaged_plugin
from tests.support.machine import confined_counters, limits_state
from tests.support.mcp_servers import write_server
from tests.support.nexo import write_nexo_plugin
from tests.support.packaged import Publisher
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement


def test_a_plugin_is_granted_called_stopped_started_and_its_lines_are_shown(
    run: Run, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugin(cwd / "plugins", "p", capabilities=["tool.execute"])
    with served(cwd, "plugins") as server:
        there = ("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        assert run("ps", *there).out.splitlines()[1].split()[:3] == ["p", "rune", "pending"]
        assert run("call", "p", "t", "{}", *there).code == 5
        done = run("grant", "p", "tool.execute", *there)
        assert done.code == 0 and "granted tool.execute" in done.err
        called = run("call", "p", "t", '{"a": 1}', "--json", *there)
        assert called.code == 0 and called.json["output"] == {"a": 1}
        assert run("call", "p", "t", '{"a": 1}', "--stream", *there).json == {"a": 1}
        assert run("stop", "p", "--json", *there).json["state"] == "stopped"
        assert run("call", "p", "t", *there).code == 1
        for command in ("start", "restart", "reload"):
            assert run(command, "p", *there).code == 0
        assert run("revoke", "p", "tool.execute", *there).code == 0
        assert run("revoke", "p", "tool.execute", *there).code == 2
        assert run("stop", "nobody", *there).code == 4
        assert run("logs", "p", "--json", *there).code == 0
        assert run("logs", "nobody", *there).code == 4
        assert run("call", "p", "t", "--grant-all", *there).code == 2
        assert server.end() == 0


def test_a_word_that_is_neither_a_folder_nor_a_plugin_is_not_found_and_the_server_that_was_asked_is_named(
    run: Run, cwd: Path
) -> None:
    write_plugin(cwd / "plugins", "p")
    with served(cwd, "plugins") as server:
        url, state = server.facts["url"], str(cwd / "state")
        done = run("call", "nowhere", "x", XDG_STATE_HOME=state)
        assert done.code == 4 and done.out == ""
        words = " ".join(done.err.split())
        assert f"there is no folder nowhere, and the server {url} has no plugin with this id" in words
        assert run("call", "nowhere", "x", "--json", XDG_STATE_HOME=state).json["failure"]["code"] == "not_found"
        for path in ("./nowhere", "plugins/nowhere/"):
            done = run("call", path, "x", XDG_STATE_HOME=state)
            assert done.code == 4 and url not in done.err, "no server is asked for a path"
            assert f"there is no folder {path}, and a plugin id looks different" in " ".join(done.err.split())
        unknown = run("call", "p", "nothing", XDG_STATE_HOME=state)
        assert unknown.code == 4 and "no folder" not in unknown.err, "the plugin is there, its export is not"
        assert run("call", "p", "t", "{}", "--json", XDG_STATE_HOME=state).json["output"] == {}
        for command in (("logs", "nowhere"), ("stop", "nowhere"), ("grant", "nowhere", "x")):
            done = run(*command, XDG_STATE_HOME=state)
            assert done.code == 4 and f"the server {url} refused" in " ".join(done.err.split())
        assert server.end() == 0


def test_without_a_server_the_hint_names_the_ways_to_one(run: Run) -> None:
    for command in (("ps",), ("logs", "p"), ("start", "p"), ("grant", "p", "x")):
        done = run(*command)
        assert done.code == 4 and "plugbay serve" in done.err


def test_after_an_upgrade_a_reload_runs_the_new_release_which_has_to_be_granted_more(
    run: Run, cwd: Path, tmp_path: Path
) -> None:
    acme = key()
    trust(tmp_path / ".config" / "plugbay" / "trust.json", (acme, "acme"))
    wants = {"1.0.0": ["files"], "2.0.0": ["files", "mail"]}
    first, second = (str(sign(pack(cwd, version, capabilities=wants[version]), acme)) for version in wants)
    assert run("install", first, "--store", "store").code == 0
    with served(cwd, "store/plugins") as server:
        there = ("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        assert run("grant", "acme.notes", "files", *there).code == 0
        assert run("call", "acme.notes", "t", "{}", "--json", *there).json["output"] == {"version": "1.0.0"}
        assert run("upgrade", second, "--store", "store", "--yes").code == 0
        assert run("reload", "acme.notes", *there).code == 0
        assert run("ps", *there).out.splitlines()[1].split()[:4] == ["acme.notes", "rune", "idle", "2.0.0"]
        denied = run("call", "acme.notes", "t", "{}", *there)
        assert denied.code == 5 and "mail" in denied.err
        assert run("grant", "acme.notes", "mail", *there).code == 0
        assert run("call", "acme.notes", "t", "{}", "--json", *there).json["output"] == {"version": "2.0.0"}
        assert run("rollback", "acme.notes", "--store", "store").code == 0
        assert run("restart", "acme.notes", *there).code == 0
        assert run("call", "acme.notes", "t", "{}", "--json", *there).json["output"] == {"version": "1.0.0"}
        assert server.end() == 0


def test_the_link_that_is_printed_logs_in_once(run: Run, cwd: Path) -> None:
    with served(cwd) as server:
        there = ("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        printed = run("dashboard", *there)
        assert printed.code == 0 and printed.err == ""
        link = printed.out.strip()
        assert re.fullmatch(rf"{server.facts['url']}/login/[\w-]{{22}}", link)
        told = run("dashboard", "--json", *there).json
        assert set(told) == {"url", "expires_at"} and told["url"] != link
        with httpx2.Client() as browser:
            assert browser.get(link).status_code == 303
            assert browser.get(server.facts["url"]).status_code == 200
            assert browser.get(link).status_code == 401
        assert server.end() == 0
        assert link.rpartition("/")[2] not in "".join(server.log)
        assert "/login/" not in str(server.facts), "a line for programs is often kept in a file"


def test_a_browser_is_opened_on_demand(run: Run, cwd: Path) -> None:
    browser = cwd / "browser"
    browser.write_text(f'#!{sys.executable}\nimport sys\nopen("{cwd}/opened", "w").write(sys.argv[1])\n')
    browser.chmod(0o755)
    with served(cwd) as server:
        there = ("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        done = run("dashboard", "--open", *there, BROWSER=f"{browser} %s")
        assert done.code == 0 and (cwd / "opened").read_text() == done.out.strip()
        none = run("dashboard", "--open", *there, BROWSER="", PATH="/nowhere")
        assert none.code == 0 and "open the link yourself" in none.err and "/login/" in none.out


def test_without_a_server_or_with_a_wrong_key_it_is_reported(run: Run, cwd: Path) -> None:
    assert run("dashboard").code == 4
    (cwd / "wrong").write_text("pb_sk_wrong")
    with served(cwd) as server:
        refused = run("dashboard", "--server", server.facts["url"], "--token-file", cwd / "wrong")
        assert refused.code == 5 and "auth.key_unknown" in refused.err


def test_what_is_too_old_is_shown_and_removed_as_plugbay_toml_has_it(run: Run, cwd: Path) -> None:
    write_plugin(cwd / "plugins", "p")
    (cwd / "plugbay.toml").write_text('[retention]\ncalls = "12 hours"\naudit = "400 days"\n')
    with served(cwd, "plugins") as server:
        there = ("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        planned = run("prune", "--dry-run", *there)
        assert planned.code == 0 and planned.err == ""
        assert [line.split() for line in planned.out.splitlines()[:3]] == [
            ["RECORDS", "KEPT", "TOO", "OLD"],
            ["calls", "12", "hours", "0"],
            ["deliveries", "90", "days", "0"],
        ]
        done = run("prune", *there)
        assert done.code == 0 and done.out.splitlines()[0].split()[-1] == "REMOVED"
        told = run("prune", "--json", *there).json
        assert told["dry_run"] is False and told["records"]["audit"] == {"kept": 400 * 24 * 3600.0, "number": 0}
        assert server.end() == 0


def test_a_time_that_is_none_keeps_a_server_from_starting_and_says_why(run: Run, cwd: Path) -> None:
    (cwd / "plugbay.toml").write_text('[retention]\ncalls = "soon"\n')
    done = run("serve", "--listen", "127.0.0.1:0")
    assert done.code == 3 and "retention.calls" in done.err and "90 days" in done.err


def test_prune_without_a_server_says_how_to_start_one(run: Run) -> None:
    done = run("prune")
    assert done.code == 4 and "plugbay serve" in done.err


def test_a_time_is_shown_as_it_is_written() -> None:
    assert [_age(seconds) for seconds in (None, 0.0, 3600.0, 7200.0, 86400.0, 2592000.0)] == [
        "forever",
        "until they expire",
        "1 hour",
        "2 hours",
        "1 day",
        "30 days",
    ]


LINE = {"at": "2026-01-01T00:00:00Z", "source": "host", "level": "warn", "text": "crashed: \x1b[31mexit 1"}


def test_a_line_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    output.out.cache_clear()
    module._show_log_line(LINE, as_json=False)
    shown = capsys.readouterr().out
    assert shown.startswith("2026-01-01T00:00:00Z host   crashed: ") and "\x1b" not in shown
    output.out.cache_clear()


def test_for_programs_each_line_is_an_object(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    module._show_log_line(LINE, as_json=True)
    assert capfdbinary.readouterr().out.startswith(b'{"at":"2026-01-01T00:00:00Z"')


def test_every_plugin_has_its_line_and_eager_ones_run(run: Run, cwd: Path, make_plugin: MakePlugin) -> None:
    make_plugin()
    write_kaged_plugin(cwd / "plugins", "notes")
    write_ainb_plugin(cwd / "plugins", "panel")
    done = run("ps", "--plugins", "plugins")
    assert done.code == 0
    head, *rows = [line.split() for line in done.out.splitlines()]
    assert head == ["PLUGIN", "CONTRACT", "STATE", "VERSION", "PID", "SANDBOX", "AND", "GRANTS"]
    by_id = {row[0]: row for row in rows}
    assert by_id["example.echo"][1:5] == ["rune", "idle", "1.0.0", "unconfined:"]
    assert by_id["panel"][1:5] == ["ainb", "idle", "1.0.0", "confined"]
    assert by_id["notes"][1:3] == ["kaged", "running"]
    confined = "confined, limits degraded" if limits_state() == DEGRADED else "confined"
    assert " ".join(by_id["notes"][5:]) == f"{confined} · keeps state · network none · granted nothing"


def test_the_json_has_the_public_shape(run: Run, cwd: Path) -> None:
    write_kaged_plugin(cwd, "notes", capabilities=["read:fs:/usr/share", "net:[]"])
    done = run("ps", "--plugins", "notes", "--grant-all", "--json")
    (plugin,) = done.json["plugins"]
    assert isinstance(plugin.pop("pid"), int)
    assert plugin.pop("sandbox")["policy"]["read"] == ["/usr/share"]
    assert plugin.pop("limits") in ("full", "full (v1)", "degraded")
    assert plugin == {
        "id": "notes",
        "name": "notes",
        "description": "A test.",
        "folder": str(cwd / "notes"),
        "version": "1.0.0",
        "contract": "kaged",
        "lifetime": "resident",
        "state": "running",
        "refused": None,
        "generation": 1,
        "busy": 0,
        "ready": 1,
        "requested": ["read:fs:/usr/share", "net:[]"],
        "granted": ["read:fs:/usr/share", "net:[]"],
        "missing": [],
        "disabled": [],
        "commands": [],
        "counters": confined_counters(),
    }


def test_who_runs_unconfined_is_not_to_be_overlooked(run: Run, cwd: Path) -> None:
    write_kaged_plugin(cwd, "notes")
    (cwd / "plugbay.toml").write_text('[plugins.notes.sandbox]\noff = "it is ours"\n')
    done = run("ps", "--plugins", "notes")
    assert "unconfined: it is ours" in done.out
    assert "note:  notes: unconfined: it runs unconfined, with all rights of this user: it is ours" in done.err
    for_once = run("ps", "--plugins", "notes", "--no-sandbox", "--json", "--config", "/dev/null")
    assert for_once.json["plugins"][0]["sandbox"]["confined"] == "unconfined: --no-sandbox"
    assert for_once.json["plugins"][0]["counters"] == {"unconfined": 1}


def test_a_plugin_without_grants_is_listed_and_does_not_run(run: Run, cwd: Path) -> None:
    write_kaged_plugin(cwd, "notes", capabilities=["net:*"])
    assert "· pending: it requests net:*, which is not granted yet" in run("ps", "--plugins", "notes").out
    (plugin,) = run("ps", "--plugins", "notes", "--json").json["plugins"]
    assert (plugin["state"], plugin["pid"], plugin["granted"], plugin["limits"]) == ("pending", None, [], "")
    assert plugin["missing"] == ["net:*"]
    assert plugin["sandbox"]["policy"]["network"]["reach"] == "none"


def test_what_is_no_folder_of_plugins_has_nothing_to_show(run: Run) -> None:
    assert run("ps", "--plugins", "nowhere").code == 4
    assert run("ps", "--plugins", "nowhere", "--json").json["failure"]["code"] == "not_found"
    assert run("ps").code == 4


def test_a_narrow_terminal_breaks_the_last_column_only(capsys: pytest.CaptureFixture[str]) -> None:
    sandbox = {"confined": "unconfined: its manifest does not ask for it", "policy": None}
    facts: dict[str, Any] = {
        "contract": "rune",
        "state": "idle",
        "version": "1.0",
        "pid": None,
        "refused": None,
        "granted": [],
        "limits": "",
    }
    page = output.Printer(console=Console(width=69, force_terminal=True, color_system=None))
    show(page, [{"id": "example.echo", "sandbox": sandbox, **facts}])
    assert capsys.readouterr().out.splitlines() == [
        "PLUGIN        CONTRACT  STATE  VERSION  PID  SANDBOX AND GRANTS",
        "example.echo  rune      idle   1.0           unconfined: its manifest",
        "                                             does not ask for it ·",
        "                                             granted nothing",
    ]


def test_finding_a_server_loads_no_database(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sqlalchemy.py").write_text("raise ModuleNotFoundError(__name__)\n")
    done = run("ps", PYTHONPATH=os.pathsep.join([str(tmp_path), str(Path(package.__file__).parents[1])]))
    assert (done.code, "no plugbay server runs on this machine" in done.err) == (4, True)


@requirement("host:pending")
def test_a_plugin_that_waits_is_pending_in_every_view_with_the_missing_grants(run: Run, cwd: Path) -> None:
    write_plugin(cwd / "plugins", "p", capabilities=["tool.execute", "files"])
    write_server(cwd / "plugins", "srv")
    with served(cwd, "plugins") as server, server.client() as client:
        there = ("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        shown = {each["id"]: each for each in client.get("/api/v1/plugins").json()["plugins"]}
        assert {id: (each["state"], each["missing"]) for id, each in shown.items()} == {
            "p": ("pending", ["tool.execute", "files"]),
            "srv": ("pending", []),
        }
        states = {line.split()[0]: line.split()[2] for line in run("ps", *there).out.splitlines()[1:]}
        assert (states["p"], states["srv"]) == ("pending", "pending")
        logged = run("logs", "p", *there).out
        assert "pending: it requests tool.execute, files, which is not granted yet" in logged
        assert "pending: its exports must be approved" in run("logs", "srv", *there).out
        link = run("dashboard", *there).out.strip()
        with httpx2.Client(follow_redirects=True) as browser:
            page = browser.get(link).text
            assert "2 pending" in " ".join(page.split()) or page.count("pending") >= 2
            assert "it requests tool.execute, files, which is not granted yet" in page
        granted = run("grant", "p", "tool.execute", "--json", *there).json
        assert (granted["state"], granted["missing"]) == ("idle", []), "the operator has decided"
        assert server.end() == 0
        assert any("p: pending: it requests tool.execute, files" in line for line in server.log)


@requirement("host:failure-same", "host:stderr-visible")
def test_a_failure_is_the_same_by_command_over_rest_and_in_the_records(
    run: Run, cwd: Path, make_plugin: MakePlugin
) -> None:
    make_plugin(answer="echo boom >&2; exit 3")
    local = run("call", "plugins/echo", "echo", "{}", "--json").json
    assert (local["status"], local["failure"]["detail"]["exit_code"]) == ("failed", 3)
    assert local["failure"]["detail"]["stderr_tail"] == ["boom"] and local["failure"]["detail"]["cause"]
    with served(cwd, "plugins") as server, server.client() as client:
        there = ("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        by_command = run("call", "example.echo", "echo", "{}", "--json", *there)
        by_rest = client.post("/api/v1/calls", json={"export": "example.echo/echo"}).json()
        streamed = client.post("/api/v1/calls?stream=true", json={"export": "example.echo/echo"}).text
        for same in (by_command.json, by_rest, json.loads(streamed.split("data: ", 1)[1])):
            assert (same["status"], same["failure"]) == (local["status"], local["failure"])
        wait_until(lambda: len(client.get("/api/v1/calls").json()["items"]) == 3, "the records")
        for record in client.get("/api/v1/calls").json()["items"]:
            assert record["status"] == local["status"]
            assert record["failure"] == {"code": "crashed", "origin": "plugin", "exit": "exit code 3"}, "no text of it"
        shown = run("call", "example.echo", "echo", "{}", *there)
        assert "exit code 3" in shown.err and "boom" in shown.err
        assert "boom" in run("logs", "example.echo", *there).out
        assert server.end() == 0


SPEAKS = """
def tool(body, m):
    print("for", body["context"]["org_id"], file=sys.stderr, flush=True)
    succeed(m, output({}))
"""


@requirement("vai:control-package-logs")
def test_the_log_of_a_package_is_shown_for_an_org_and_its_key_sees_no_other(
    run: Run, cwd: Path, tmp_path: Path
) -> None:
    write_plugin(cwd / "plugins", "p")
    packed = Publisher(tmp_path, tmp_path).pack(SPEAKS)
    with served(cwd, "plugins", "--allow-unsigned", "--no-sandbox") as server, server.client() as client:
        there = ("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        headers = {"content-type": "application/gzip"}
        row = client.post("/v1/plugin-packages", content=packed.path.read_bytes(), headers=headers).json()
        keys = {}
        for org in ("org_1", "org_2"):
            assert client.post("/v1/orgs", json={"id": org, "name": org}).status_code == 201
            key = client.post("/v1/api-keys", json={"org_id": org, "name": "k", "role": "viewer"}).json()["key"]
            keys[org] = tmp_path / f"{org}.token"
            keys[org].write_text(key)
            scope = {"package_id": "acme/p", "package_version": "1.0.0", "export_id": "t", "scope": {"org_id": org}}
            binding = client.post("/v1/plugin-bindings", json=scope).json()["binding_id"]
            done = client.post("/v1/plugin-invocations", json={"binding_id": binding}).json()
            assert done["invocation"]["status"] == "succeeded", done

        def shown(*words: str) -> str:
            done = run("logs", *words)
            assert done.code == 0, done.err
            return done.out

        def is_shown(text: str, *words: str) -> bool:
            return text in shown(*words)

        for org, other in (("org_1", "org_2"), ("org_2", "org_1")):
            wait_until(partial(is_shown, f"for {org}", "acme/p", "--org", org, *there), "its line")
            by_key = shown("acme/p", "--server", server.facts["url"], "--token-file", str(keys[org]))
            assert f"for {org}" in by_key and other not in by_key
            assert by_key == shown(row["id"], "--org", org, *there)
            (line,) = (json.loads(line) for line in shown("acme/p", "--org", org, "--json", *there).splitlines())
            assert (line["source"], line["text"].split("] ")[1]) == ("stderr", f"for {org}")
        everything = shown("acme/p", *there)
        assert "for org_1" in everything and "for org_2" in everything
        stranger = run(
            "logs", "acme/p", "--org", "org_1", "--server", server.facts["url"], "--token-file", str(keys["org_2"])
        )
        assert stranger.code == 4 and "org.not_found" in stranger.err
        for wrong in (("nobody",), ("acme/none",), ("acme/none", "--org", "org_1"), ("Not An Id", "--org", "org_1")):
            assert run("logs", *wrong, *there).code == 4, wrong
        with client.stream("GET", f"/v1/plugin-packages/{row['id']}/logs?org_id=org_1&follow=true") as lines:
            assert any("for org_1" in line for line in lines.iter_lines())
        assert server.end() == 0


@requirement("host:failure-same")
def test_a_start_that_fails_on_the_server_shows_the_stderr_of_the_plugin(run: Run, cwd: Path) -> None:
    write_nexo_plugin(cwd / "plugins", "p", 'print("no licence", file=sys.stderr)\nsys.exit(4)\n')
    with served(cwd, "plugins") as server:
        there = ("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        shown = run("restart", "p", *there)
        assert shown.code == 7 and "no licence" in shown.err
        failure = run("restart", "p", "--json", *there).json["failure"]
        assert (failure["detail"]["exit_code"], failure["detail"]["stderr_tail"]) == (4, ["no licence"])
        assert server.end() == 0
