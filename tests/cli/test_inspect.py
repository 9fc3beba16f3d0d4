"""`plugbay inspect` shows a plugin and every problem of its manifest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plugbay.cli.inspect import to_json
from plugbay.host.discovery.folders import inspect
from tests.cli.conftest import SCHEMA, MakePlugin, Run, write_manifest
from tests.support.ainb import write_ainb_plugin
from tests.support.nexo import write_nexo_plugin
from tests.support.requirements import requirement

BROKEN = """\
{
  "plugin_id": "example.broken",
  "plugin_version": 3,
  "protocol_version": "rterm.plugin.v2",
  "process": {"args": []},
  "tools": [
    {"name": "a", "aproval_tier": "safe"},
    {"name": "a", "approval_tier": "sfe"}
  ]
}
"""


def test_the_json_of_a_plugin_is_exactly_the_public_shape(run: Run, make_plugin: MakePlugin) -> None:
    done = run("inspect", make_plugin(capabilities=["tool.execute"]), "--json")
    assert done.code == 0
    assert done.err == ""
    shown = done.json
    assert {"name": "call", "value": 5.0, "unit": "seconds", "source": "contract default"} in shown.pop("limits")
    assert shown == {
        "contract": "rune",
        "id": "example.echo",
        "version": "1.0.0",
        "name": "Echo",
        "description": "The echo plugin.",
        "lifetime": "per_call",
        "exports": [{"kind": "tool", "name": "echo", "description": "Says it again.", "input_schema": SCHEMA}],
        "capabilities": ["tool.execute"],
        "roles": [],
        "hooks": [],
        "knobs": [],
        "health": None,
        "sandbox": {
            "confined": "unconfined: its manifest does not ask for it",
            "policy": None,
            "scratch": False,
            "notes": [],
        },
        "problems": [],
        "left_out": None,
    }


def test_the_json_of_a_broken_plugin_has_every_key_and_every_problem(run: Run, cwd: Path) -> None:
    write_manifest(cwd / "broken", BROKEN)
    done = run("inspect", "broken", "--json")
    assert done.code == 3
    answer = done.json
    problems = answer.pop("problems")
    assert answer == {
        "contract": "rune",
        "id": None,
        "version": None,
        "name": None,
        "description": None,
        "lifetime": None,
        "exports": [],
        "capabilities": [],
        "roles": [],
        "hooks": [],
        "knobs": [],
        "health": None,
        "sandbox": None,
        "limits": [],
        "left_out": None,
    }
    assert all(set(problem) == {"severity", "code", "path", "line", "message"} for problem in problems)
    seen = {(problem["severity"], problem["code"], problem["path"], problem["line"]) for problem in problems}
    assert seen == {
        ("error", "invalid_type", "plugin_version", 3),
        ("error", "invalid_value", "protocol_version", 4),
        ("error", "missing_field", "process.command", 5),
        ("warning", "unknown_key", "tools[0].aproval_tier", 7),
        ("error", "duplicate_tool", "tools[1].name", 8),
        ("error", "invalid_value", "tools[1].approval_tier", 8),
    }


def test_a_person_sees_each_problem_with_its_file_and_line(run: Run, cwd: Path) -> None:
    write_manifest(cwd / "broken", BROKEN)
    done = run("inspect", "broken")
    assert done.code == 3
    assert "Problems  5 errors, 1 warning" in done.out
    assert "✗ broken/rterm-plugin.json:3  invalid_type" in done.out
    assert "! broken/rterm-plugin.json:7  unknown_key" in done.out
    assert "did you mean 'approval_tier'?" in done.out
    assert done.err == ""


def test_the_text_output_describes_the_plugin(run: Run, make_plugin: MakePlugin) -> None:
    done = run("inspect", make_plugin(capabilities=["tool.execute"]))
    assert done.code == 0
    assert done.err == "", "in a pipe there is nobody to suggest a command to"
    for fact in (
        "Echo 1.0.0",
        "The echo plugin.",
        "example.echo",
        "rune · one process per call",
        "./run.sh",
        "launch 2 s · handshake 2 s · call 5 s · teardown 0.5 s",
        "tool.execute",
        "tool echo",
        "Says it again.",
        "text?: string",
    ):
        assert fact in done.out


def test_warnings_do_not_make_a_plugin_unusable(run: Run, make_plugin: MakePlugin) -> None:
    plugin = make_plugin(colour="red", process={"command": "./nope"})
    done = run("inspect", plugin)
    assert done.code == 0
    assert "2 warnings" in done.out
    codes = {problem["code"] for problem in run("inspect", plugin, "--json").json["problems"]}
    assert codes == {"unknown_key", "command_unusable"}


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1, "a": 2}', "", "\ufeff{}"])
def test_a_manifest_that_cannot_be_parsed_is_invalid_and_still_has_its_contract(cwd: Path, text: str) -> None:
    write_manifest(cwd / "broken", text)
    answer = to_json(inspect(cwd / "broken"), None)
    assert answer["contract"] == "rune"
    assert [problem["severity"] for problem in answer["problems"]] == ["error"]
    json.dumps(answer)


def test_a_folder_of_plugins_is_no_plugin_and_its_plugins_are_listed_as_commands(
    run: Run, make_plugin: MakePlugin, cwd: Path
) -> None:
    make_plugin("one")
    make_plugin("two words")
    done = run("inspect", "plugins")
    assert done.code == 4
    assert done.out == ""
    assert "plugins is a folder of 2 plugins" in done.err
    assert "  plugbay inspect plugins/one\n" in done.err
    assert "  plugbay inspect 'plugins/two words'\n" in done.err


def test_a_long_list_of_plugins_is_cut(run: Run, cwd: Path) -> None:
    for number in range(15):
        write_manifest(cwd / "many" / f"plugin-{number:02}", "{}")
    assert "… and 3 more" in run("inspect", "many").err


@pytest.mark.parametrize("name", ["nowhere", "empty", "file.txt"])
def test_where_there_is_no_plugin_there_is_an_explanation(run: Run, cwd: Path, name: str) -> None:
    (cwd / "empty").mkdir()
    (cwd / "file.txt").touch()
    done = run("inspect", name)
    assert done.code == 4
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert name in done.err
    assert "hint:" in done.err


def test_the_json_of_nothing_has_the_public_shape(run: Run) -> None:
    done = run("inspect", "nowhere", "--json")
    assert done.code == 4
    assert done.json["contract"] is None
    assert done.json["exports"] == []
    assert [problem["code"] for problem in done.json["problems"]] == ["not_found"]


def test_a_manifest_stands_for_its_folder(run: Run, make_plugin: MakePlugin) -> None:
    assert run("inspect", make_plugin() / "rterm-plugin.json", "--json").json["id"] == "example.echo"


def test_a_folder_whose_name_is_no_text_can_be_inspected(run: Run, cwd: Path) -> None:
    name = "odd-\udcff"
    write_manifest(cwd / name, "{}")
    assert "odd-\\xed\\xb3\\xbf" in run("inspect", name).out
    assert run("inspect", name, "--json").code == 3


def test_on_a_terminal_the_next_command_is_suggested_and_works(
    on_terminal: Callable[..., str], run: Run, make_plugin: MakePlugin
) -> None:
    shown = on_terminal("inspect", make_plugin(capabilities=["tool.execute"]), NO_COLOR="1")
    assert "try: plugbay call plugins/echo echo --grant-all '{}'\n" in shown
    assert run("call", "plugins/echo", "echo", "--grant-all", "{}").code == 0


def test_a_terminal_that_claims_no_columns_still_sees_everything(run: Run, make_plugin: MakePlugin) -> None:
    assert "Echo 1.0.0" in run("inspect", make_plugin(), COLUMNS="0").out


def test_the_text_output_lists_subscriptions_publications_and_requests(run: Run, cwd: Path) -> None:
    more = '[plugin.supervisor]\nrespawn = true\n[plugin.sandbox]\nenabled = true\nfs_read_paths = ["/srv/data"]\n'
    write_nexo_plugin(cwd, tools=["echo"], extends={"hooks": ["before_message"]}, channels=["k"], more=more)
    text = run("inspect", "p").out
    for words in (
        "nexo · one resident process",
        "memory.recall, llm.complete",
        "plugin.outbound.k, plugin.outbound.k.>",
        "plugin.inbound.k, plugin.inbound.k.>",
        "restarts, at most 3 times, first after 1 s",
        "sandbox   confined",
        "network   none",
        "missing   it may read /srv/data, but that path does not exist",
        "limits    1 GiB memory · 1 core · 256 processes",
        "declared at start",
        "hook before_message",
    ):
        assert words in text


def test_the_shown_policy_uses_the_current_grants(run: Run, cwd: Path) -> None:
    capabilities = {"network": ["api.example.com:443"], "read_paths": ["/usr/share"]}
    root = write_ainb_plugin(cwd, "panel", capabilities=capabilities)

    def policy(*options: str) -> Any:
        return run("inspect", root, "--json", *options).json["sandbox"]["policy"]

    closed = {"reach": "none", "doors": [], "private": []}
    assert (policy()["network"], policy()["read"]) == (closed, [])
    opened = {"reach": "listed", "doors": ["api.example.com:443"], "private": []}
    assert (policy("--grant", "network")["network"], policy("--grant-all")["read"]) == (opened, ["/usr/share"])
    (cwd / "plugbay.toml").write_text('[plugins.panel]\ngrants = ["read_paths"]\n')
    assert (policy()["network"], policy()["read"]) == (closed, ["/usr/share"])
    assert "reads     /usr/share" in run("inspect", root).out
    (cwd / "plugbay.toml").write_text('[plugins.panel]\nsandbox = "off"\n')
    refused = run("inspect", root)
    assert refused.code == 3 and "the reason why" in refused.err


def test_a_person_sees_why_a_plugin_is_not_confined(run: Run, cwd: Path) -> None:
    root = write_ainb_plugin(cwd, "panel")
    (cwd / "plugbay.toml").write_text('[plugins.panel.sandbox]\noff = "it needs the graphics card"\n')
    assert "sandbox   unconfined: it needs the graphics card" in run("inspect", root).out
    (cwd / "plugbay.toml").write_text('[plugins.panel.sandbox]\nread = ["/etc"]\n')
    text = run("inspect", root).out
    assert "sandbox   refused: it cannot be confined as requested: /etc must not be visible to a plugin" in text
    assert "hint      grant only the paths that the plugin needs" in text


def test_the_text_output_of_an_ainb_plugin_lists_start_subscriptions_and_exports(run: Run, cwd: Path) -> None:
    root = write_ainb_plugin(
        cwd / "dist" / "plugins",
        "burndown",
        screens=["analytics"],
        namespaces=["usage"],
        capabilities={"event_bus": True, "network": ["api.example.com"]},
        subscribes={"snapshots": ["sessions.usage", "ui.theme"]},
        lifecycle={"idle_reap_secs": 90},
    )
    text = run("inspect", root).out
    for words in (
        "ainb · one resident process",
        "event_bus, network=api.example.com",
        "sessions.usage, ui.theme",
        "on demand",
        "stopped after 90 s",
        "screen analytics",
        "width?: integer 1..65535 = 80",
        "cli_namespace usage",
        "argv?: string[] = []",
    ):
        assert words in text
    eager = write_ainb_plugin(cwd, "eager", lifecycle={"spawn": "eager", "idle_reap_secs": 0})
    text = run("inspect", eager).out
    assert "with the host" in text
    assert "stopped after" not in text
    assert "restarts, at most 2 times, first after 1 s" in text


def test_a_person_sees_the_commands_of_a_palette(run: Run, cwd: Path) -> None:
    root = write_ainb_plugin(cwd, "p")
    manifest = root / "manifest.toml"
    manifest.write_text(
        manifest.read_text().replace("[provides]\n", '[provides]\ncommands = ["/usage", "/burndown"]\n')
    )
    assert "/usage, /burndown" in run("inspect", root).out


def test_a_staged_folder_of_ainb_plugins_is_listed(run: Run, cwd: Path) -> None:
    for name in ("burndown", "session-reader"):
        write_ainb_plugin(cwd / "dist" / "plugins", name)
    (cwd / "dist" / "plugins" / "session-reader" / "manifest.toml").write_text("[plugin]\nname = ")
    done = run("inspect", "dist/plugins")
    assert done.code == 4
    assert "plugbay inspect dist/plugins/burndown\n" in done.err
    assert "plugbay inspect dist/plugins/session-reader\n" in done.err
    assert run("inspect", "dist/plugins/session-reader").code == 3


VAI = """\
api_version = "vai.plugin.v1"
package_id = "acme/devkit"
version = "0.1.0"
name = "Dev Kit"
[runtime]
protocol = "vai.rpc.v1"
transport = "stdio"
entrypoint = ["python3", "main.py"]
os = ["linux", "darwin"]
arch = ["amd64", "arm64"]
[[exports]]
id = "jira_search"
kind = "tool"
display_name = "Jira Search"
[exports.permissions]
network = "egress"
secret_slots = ["jira_token"]
[exports.tool]
effect_class = "read_only"
input_schema = "input.json"
[[exports]]
id = "triage"
kind = "harness"
display_name = "Triage"
max_concurrency = 4
[exports.harness]
fidelity = "checkpoint"
[[exports]]
id = "notify"
kind = "hook"
display_name = "Notify"
[exports.hook]
subscribes_to = ["run.completed", "chain.compacted"]
"""


def test_a_person_sees_how_each_export_of_a_vai_package_runs(run: Run, cwd: Path) -> None:
    (cwd / "devkit").mkdir()
    (cwd / "devkit" / "vai-plugin.toml").write_text(VAI)
    (cwd / "devkit" / "input.json").write_text(json.dumps(SCHEMA))
    done = run("inspect", "devkit")
    assert done.code == 0
    for fact in (
        "acme/devkit",
        "network, secret=jira_token",
        "tool jira_search  needs network, secret=jira_token",
        "isolated · 20 s · 1 at a time · read_only",
        "isolated · 1800 s · 4 at a time · checkpoint",
        "worker · 15 s · 1 at a time · on run.completed · on chain.compacted",
        "text?: string",
    ):
        assert fact in done.out
    search, *_ = run("inspect", "devkit", "--json").json["exports"]
    assert search["capabilities"] == ["network", "secret=jira_token"]
    assert (search["facts"]["execution_class"], search["facts"]["timeout_ms"]) == ("isolated", 20_000)
    assert search["facts"]["permissions"]["secret_slots"] == ["jira_token"]


@requirement("host:limits-sources")
def test_each_limit_is_shown_with_its_source(run: Run, cwd: Path, make_plugin: MakePlugin) -> None:
    folder = make_plugin()
    (cwd / "plugbay.toml").write_text('[plugins."example.echo"]\ntimeouts = { call = 9 }\n')
    lines = " ".join(run("inspect", folder).out.split())
    assert "contract default: launch 2 s · handshake 2 s" in lines
    assert "plugbay.toml: call 9 s" in lines and "host default: concurrency 32" in lines
    limits = {each["name"]: each for each in run("inspect", folder, "--json").json["limits"]}
    assert limits["call"] == {"name": "call", "value": 9.0, "unit": "seconds", "source": "plugbay.toml"}
