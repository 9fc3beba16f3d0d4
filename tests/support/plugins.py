"""Small plugin folders, written where a test wants them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HELLO = (
    '{"type":"handshake","manifest":{"plugin_id":"%(id)s","plugin_version":"1","protocol_version":"rterm.plugin.v1",'
    '"exposed_tools":["t"],"capabilities":%(capabilities)s}}'
)

ECHO_SH = """\
read -r _; printf '%s\\n' '{hello}'
IFS= read -r request || exit 0
id=${{request#*'"request_id":"'}}; id=${{id%%'"'*}}
input=${{request#*'"input":'}}; input=${{input%\\}}}}
printf '{{"type":"response","request_id":"%s","status":"ok","output":%s}}\\n' "$id" "$input"
cat >/dev/null
"""
"""Answers any call with its own input; starts in about a millisecond."""


def write_plugin(
    root: Path,
    plugin_id: str = "p",
    *,
    script: str = ECHO_SH,
    capabilities: list[str] | None = None,
    **manifest: Any,
) -> Path:
    """A rune plugin in POSIX shell with one tool `t`. `{hello}` in the script becomes a good handshake."""
    folder = root / plugin_id
    folder.mkdir(parents=True, exist_ok=True)
    hello = HELLO % {"id": plugin_id, "capabilities": json.dumps(capabilities or [])}
    (folder / "run.sh").write_text(
        "#!/bin/sh\n" + script.replace("{{", "{").replace("}}", "}").replace("{hello}", hello)
    )
    (folder / "run.sh").chmod(0o755)
    write_manifest(folder, plugin_id, {"command": "./run.sh"}, capabilities=capabilities or [], **manifest)
    return folder


def write_python_plugin(root: Path, plugin_id: str, source: str, tools: list[str], **manifest: Any) -> Path:
    """A plugin run by this interpreter; `source` is its whole program."""
    folder = root / plugin_id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plugin.py").write_text(source)
    process = {"command": sys.executable, "args": ["plugin.py"]}
    write_manifest(folder, plugin_id, process, tools=[{"name": tool} for tool in tools], **manifest)
    return folder


def write_manifest(folder: Path, plugin_id: str, process: dict[str, Any], **changes: Any) -> None:
    whole = {
        "plugin_id": plugin_id,
        "plugin_version": "1",
        "protocol_version": "rterm.plugin.v1",
        "process": process,
        "tools": [{"name": "t"}],
    }
    (folder / "rterm-plugin.json").write_text(json.dumps(whole | changes))
