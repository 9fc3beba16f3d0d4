"""`plugbay adapt`: folders for other hosts, explanations, and refusals."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

from tests.cli.conftest import MakePlugin, Run
from tests.support.mcp_servers import write_server

PLUGIN = ("--grant-all", "--no-sandbox")


def test_a_folder_is_written_and_its_plugin_answers(run: Run, make_plugin: MakePlugin, cwd: Path) -> None:
    source = make_plugin("echo")
    done = run("adapt", source, "--to", "kaged", *PLUGIN)
    assert done.code == 0, done.err
    (folder,) = [path for path in cwd.iterdir() if path.name.endswith("-kaged")]
    assert str(folder) in done.out
    called = run("call", folder, "echo", '{"text": "hello"}', *PLUGIN)
    assert called.code == 0, called.err
    assert called.json == {"text": "hello"}
    again = run("adapt", source, "--to", "kaged", *PLUGIN, "--json")
    assert again.json["folder"] == str(folder)
    assert "kaged-plugin.yaml" in again.json["files"]


def test_explain_lists_what_is_left_out_and_writes_nothing(run: Run, cwd: Path) -> None:
    body = """
    RESOURCES = [{"uri": "memo://1", "name": "note"}]
    """
    manifest = write_server(cwd / "servers", body=body)
    done = run("adapt", manifest, "--to", "vai", "--explain")
    assert done.code == 0, done.err
    assert "tool srv/echo → tool echo" in done.out
    assert "resource srv/note  vai has no resources" in done.out
    rows = run("adapt", manifest, "--to", "vai", "--explain", "--json").json["exports"]
    assert [(row["kind"], row["form"], row["served"]) for row in rows] == [
        ("tool", "tool", "echo"),
        ("resource", None, None),
    ]
    assert [path.name for path in cwd.iterdir()] == ["servers"]


def test_run_speaks_to_the_host_at_once(run: Run, make_plugin: MakePlugin) -> None:
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}},
        {"jsonrpc": "2.0", "id": 2, "method": "shutdown", "params": {}},
    ]
    stdin = "".join(json.dumps(line) + "\n" for line in lines)
    done = run("adapt", make_plugin("echo"), "--to", "nexo", "--run", *PLUGIN, stdin=stdin)
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2], done.err
    assert [tool["name"] for tool in answers[0]["result"]["tools"]] == ["example_echo_echo"]


def test_what_cannot_be_adapted_is_refused(run: Run, make_plugin: MakePlugin, cwd: Path) -> None:
    source = make_plugin("echo")
    unknown = run("adapt", source, "--to", "soap")
    assert (unknown.code, "there are rune, nexo" in unknown.err) == (2, True)
    absent = run("adapt", "nowhere", "--to", "nexo")
    assert (absent.code, "plugbay.toml declares no such server" in absent.err) == (4, True)
    both = run("adapt", source, "--to", "nexo", "--run", "--explain")
    assert both.code == 2
    (cwd / "full").mkdir()
    (cwd / "full" / "file").touch()
    taken = run("adapt", source, "--to", "nexo", "--output", "full")
    assert (taken.code, "is not an adapter" in taken.err) == (2, True)
    other = run("adapt", source, "--to", "ainb", "--output", "other")
    assert (other.code, "--output" in other.err) == (2, True)
    (cwd / "plugin.py").touch()
    no_manifest = run("adapt", "plugin.py", "--to", "nexo")
    assert (no_manifest.code, "plugbay manifest" in no_manifest.err) == (3, True)


def test_a_source_is_never_replaced_by_its_own_adapter(run: Run, cwd: Path) -> None:
    manifest = write_server(cwd / "servers")
    assert run("adapt", manifest, "--to", "nexo").code == 0
    before = (cwd / "srv-nexo" / "adapter.json").read_text()
    itself = run("adapt", "srv-nexo", "--to", "nexo", "-o", "srv-nexo", "--grant-all")
    assert (itself.code, "its own source is there" in itself.err) == (2, True)
    assert (cwd / "srv-nexo" / "adapter.json").read_text() == before
    assert run("adapt", manifest, "--to", "mcp").code == 0
    entry = json.loads((cwd / "srv-mcp" / ".mcp.json").read_text())["mcpServers"]["srv"]
    (cwd / "plugbay.toml").write_text(f"[mcp.srv]\ncommand = {json.dumps([entry['command'], *entry['args']])}\n")
    named = run("adapt", "srv", "--to", "mcp")
    assert (named.code, "its own source is there" in named.err) == (2, True)


def test_a_folder_without_plugins_is_refused(run: Run, cwd: Path) -> None:
    (cwd / "empty").mkdir()
    done = run("adapt", "empty", "--to", "nexo")
    assert done.code == 4
    assert "there is no plugin in empty" in done.err
    assert "hint:" in done.err


def test_an_adapter_for_rune_has_the_usual_variables_of_its_maker(run: Run, cwd: Path) -> None:
    manifest = write_server(cwd / "servers")
    said = json.loads(manifest.read_text())
    program = cwd / "bin" / "server-of-this-user"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec {shlex.join([sys.executable, *said['mcpServers']['srv']['args']])}\n")
    program.chmod(0o755)
    manifest.write_text(json.dumps({"mcpServers": {"srv": {"command": program.name}}}))
    path = {"PATH": f"{program.parent}:{os.environ['PATH']}", "PLUGBAY_ADAPTER_IDLE": "0.3"}
    done = run("adapt", "../work/servers/../servers", "--to", "rune", "--json", **path)
    assert done.code == 0, done.err
    pin = json.loads((cwd / "srv-rune" / "adapter.json").read_text())
    assert pin["sources"][0]["path"] == str(manifest)
    called = run("call", "srv-rune", "echo", '{"text": "hello"}', *PLUGIN)
    assert called.code == 0, called.err


def test_a_server_that_cannot_start_is_named(run: Run, cwd: Path) -> None:
    done = run("adapt", write_server(cwd / "servers", body="sys.exit(4)"), "--to", "rune")
    assert done.code != 0
    assert "srv cannot be adapted: " in done.err


def test_a_server_without_exports_is_refused(run: Run, cwd: Path) -> None:
    manifest = write_server(cwd / "servers", body="TOOLS = []")
    done = run("adapt", manifest, "--to", "rune")
    assert done.code == 3
    assert "nothing here maps to rune: there is no export at all" in done.err


def test_several_sources_need_an_id(run: Run, make_plugin: MakePlugin, cwd: Path) -> None:
    one, two = make_plugin("one"), make_plugin("two")
    refused = run("adapt", one, two, "--to", "nexo")
    assert (refused.code, "--id" in refused.err) == (2, True)
    done = run("adapt", one, two, "--to", "nexo", "--id", "both", "--json")
    assert done.code == 0, done.err
    assert [row["served"] for row in done.json["exports"] if row["form"]] == [
        "both_example_one__one",
        "both_example_two__two",
    ]


def test_names_that_collide_are_refused_with_a_way_out(run: Run, cwd: Path) -> None:
    body = """
    TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("Read", "read")]
    """
    manifest = write_server(cwd / "servers", body=body)
    refused = run("adapt", manifest, "--to", "nexo", "--explain")
    assert (refused.code, "--only" in refused.err) == (3, True)
    assert run("adapt", manifest, "--to", "nexo", "--explain", "--only", "srv/read").code == 0


def test_a_server_of_plugbay_toml_is_a_source(run: Run, cwd: Path) -> None:
    write_server(cwd / "servers")
    entry = json.loads((cwd / "servers" / ".mcp.json").read_text())["mcpServers"]["srv"]
    (cwd / "plugbay.toml").write_text(f"[mcp.files]\ncommand = {json.dumps([entry['command'], *entry['args']])}\n")
    done = run("adapt", "files", "--to", "rune", "--json")
    assert done.code == 0, done.err
    pin = json.loads((Path(done.json["folder"]) / "adapter.json").read_text())
    assert pin["sources"] == [{"id": "files", "contract": "mcp", "path": ""}]
    assert pin["settings"]["config"] == str(cwd / "plugbay.toml")
    assert pin["approvals"].keys() == {"files"}
