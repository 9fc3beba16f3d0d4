"""A file of the kit becomes a program of a plugin, with a manifest that is right."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

from plugbay.conformance.engine.manifests import ainb_manifest, install, mcp_manifest, vai_manifest
from plugbay.contracts.ainb.manifest import parse


def test_a_program_runs_the_file_beside_it_and_tells_it_what_to_do(tmp_path: Path) -> None:
    root = tmp_path / "a folder"
    root.mkdir()
    (root / "file.py").write_text("import sys\nprint(sys.argv[1])")
    install(root, "p", "file.py", "it's odd")
    done = subprocess.run([root / "p"], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout == "it's odd\n"


def test_a_manifest_is_right_and_says_what_it_is_given(tmp_path: Path) -> None:
    sections: dict[str, dict[str, Any]] = {
        "plugin": {"description": 'says "hi"'},
        "capabilities": {"event_bus": True, "secrets:read": ["k"]},
        "provides": {"screens": ["main"]},
        "lifecycle": {},
    }
    spec, problems = parse(ainb_manifest("p", sections), tmp_path / "p")
    assert problems == []
    assert spec is not None
    assert (spec.id, spec.description) == ("p", 'says "hi"')
    assert spec.capabilities == ("event_bus", "secrets:read=k")
    assert [export.name for export in spec.exports] == ["main"]


def test_a_manifest_of_vai_names_the_file_and_what_it_does_wrong() -> None:
    hook = {"id": "h", "kind": "hook", "display_name": 'a "b"', "hook": {"subscribes_to": ["run.completed"]}}
    written = tomllib.loads(vai_manifest("a/p", "file.py", "odd", [hook], version="2.0.0"))
    assert written["runtime"]["entrypoint"] == ["python3", "-E", "-S", "file.py", "odd"]
    assert (written["package_id"], written["version"], written["exports"]) == ("a/p", "2.0.0", [hook])


def test_a_manifest_of_mcp_names_one_server_and_its_command() -> None:
    entry = {"command": "python3", "args": ["file.py", "odd"]}
    assert json.loads(mcp_manifest("p", ["python3", "file.py", "odd"])) == {"mcpServers": {"p": entry}}
