"""Servers that plugbay.toml declares, as plugins."""

from __future__ import annotations

import json
from pathlib import Path

from plugbay.host.config import config
from plugbay.host.discovery.folders import discover
from plugbay.host.discovery.servers import find_servers
from tests.support.mcp_servers import declare
from tests.support.requirements import requirement


@requirement("mcp:host-sources")
def test_a_command_there_makes_the_same_plugin_as_in_a_folder(tmp_path: Path) -> None:
    declare(tmp_path, "x", {"command": "python3", "args": ["s.py"], "env": {"K": "secret://k"}})
    file = tmp_path / "plugbay.toml"
    file.write_text('[mcp.x]\ncommand = ["python3", "s.py"]\nenv = { K = "secret://k" }\ninherit_env = ["EXTRA"]\n')
    (here,) = find_servers(config.load(file))
    (there,) = discover([tmp_path])
    assert here.spec is not None and there.spec is not None
    assert (here.entry, here.spec.command, here.spec.settings) == ("x", there.spec.command, there.spec.settings)
    assert here.spec.env_inherit == (*there.spec.env_inherit, "EXTRA")


def test_a_problem_names_the_section_and_no_line(tmp_path: Path) -> None:
    file = tmp_path / "plugbay.toml"
    file.write_text('[mcp.x]\ncommand = ["${SURELY_NOT_SET}"]\n')
    (found,) = find_servers(config.load(file))
    assert found.spec is None
    assert (found.errors[0].path, found.errors[0].line) == ("mcp.x.command", None)


@requirement("mcp:host-sources")
def test_a_bundle_is_called_as_the_operator_calls_it(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    folder.mkdir()
    server = {"type": "python", "entry_point": "s.py"}
    manifest = {"manifest_version": "0.3", "name": "notes", "version": "2.0", "server": server}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "s.py").write_text("")
    file = tmp_path / "plugbay.toml"
    file.write_text('[mcp.mine]\nbundle = "bundle"\n[mcp.none]\nbundle = "nowhere"\n')
    mine, none = find_servers(config.load(file))
    assert mine.spec is not None
    assert (mine.spec.id, mine.spec.version) == ("mine", "2.0")
    assert (none.spec, none.entry) == (None, "none")
