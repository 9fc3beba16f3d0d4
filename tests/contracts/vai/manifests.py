"""Manifests of vai packages to bend in tests, and what is found wrong with them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plugbay.contracts.vai.manifest import parse
from plugbay.model.errors import Problem
from plugbay.model.spec import PluginSpec

ROOT = Path("/plugins/devkit")

Found = tuple[str, str, str]
"""Severity, code and path of a problem."""

OBJECT = json.dumps({"type": "object"}).encode()

EXAMPLE = """\
api_version = "vai.plugin.v1"
package_id = "acme/devkit"
version = "0.1.0"
name = "Acme Dev Kit"
description = "Harnesses, tools, hooks, and compaction strategies"
license = "Apache-2.0"
source = "oci://ghcr.io/acme/devkit:0.1.0"

[runtime]
protocol = "vai.rpc.v1"
transport = "stdio"
entrypoint = ["./bin/plugin"]
os = ["linux", "darwin"]
arch = ["amd64", "arm64"]

# --- Harness export ---
[[exports]]
id = "triage"
kind = "harness"
display_name = "Triage Harness"
description = "Composite bug triage harness"
execution_class = "isolated"
default_timeout_ms = 1800000
max_concurrency = 4
config_schema = "schemas/triage_config.json"

[exports.permissions]
network = "egress"
filesystem = "scratch"
gateway_api_scopes = [
  "sessions:read", "chains:read",
  "chains:write", "runs:write",
  "compactions:write"
]
secret_slots = ["anthropic_key", "openai_key"]

[exports.harness]
mode = "composite"
fidelity = "checkpoint"
supports = ["continue", "branch_session", "compact", "tool"]

# --- Tool export ---
[[exports]]
id = "jira_search"
kind = "tool"
display_name = "Jira Search"
execution_class = "isolated"
default_timeout_ms = 20000
config_schema = "schemas/jira_search_config.json"

[exports.permissions]
network = "egress"
filesystem = "none"
gateway_api_scopes = []
secret_slots = ["jira_token"]

[exports.tool]
effect_class = "read_only"
streaming = false
input_schema = "schemas/jira_search_input.json"
output_schema = "schemas/jira_search_output.json"

# --- Hook export ---
[[exports]]
id = "slack_notify"
kind = "hook"
display_name = "Slack Notifier"
execution_class = "worker"
default_timeout_ms = 15000
config_schema = "schemas/slack_notify_config.json"

[exports.permissions]
network = "egress"
filesystem = "none"
gateway_api_scopes = ["runs:read"]
secret_slots = ["slack_webhook"]

[exports.hook]
subscribes_to = ["run.completed", "chain.compacted"]

# --- Compactor export ---
[[exports]]
id = "coder_window"
kind = "compactor"
display_name = "Coder Window"
execution_class = "worker"
default_timeout_ms = 120000
config_schema = "schemas/coder_window_config.json"

[exports.permissions]
network = "none"
filesystem = "scratch"
gateway_api_scopes = []
secret_slots = []

[exports.compactor]
target_context = "coding"
supports_pinned_items = true
"""
"""The contract's own example, all 98 lines."""

EXAMPLE_SCHEMAS = (
    "schemas/triage_config.json",
    "schemas/jira_search_config.json",
    "schemas/jira_search_input.json",
    "schemas/jira_search_output.json",
    "schemas/slack_notify_config.json",
    "schemas/coder_window_config.json",
)


@dataclass
class MemorySite:
    """A folder and a machine that are only said to exist."""

    files: dict[str, bytes] = field(default_factory=lambda: dict.fromkeys((*EXAMPLE_SCHEMAS, "in.json"), OBJECT))
    programs: tuple[str, ...] = ("./bin/plugin",)
    platform: tuple[str, str] = ("linux", "amd64")

    def read(self, path: str, limit: int) -> bytes | Problem:
        data = self.files.get(path)
        if data is None:
            return Problem("file_missing", "", "cannot be read: it is not there")
        return data if len(data) <= limit else Problem("too_large", "", "too large")

    def program_problem(self, path: str) -> str | None:
        return None if path in self.programs else "cannot be started: it is not there"


HEAD = {
    "api_version": '"vai.plugin.v1"',
    "package_id": '"acme/devkit"',
    "version": '"1.2.3"',
    "name": '"Dev Kit"',
}
RUNTIME = {
    "protocol": '"vai.rpc.v1"',
    "transport": '"stdio"',
    "entrypoint": '["./bin/plugin"]',
    "os": '["linux"]',
    "arch": '["amd64"]',
}
TABLES = {
    "tool": 'input_schema = "in.json"',
    "hook": 'subscribes_to = ["run.completed"]',
    "harness": 'fidelity = "checkpoint"',
    "compactor": 'target_context = "coding"',
}


def _lines(values: dict[str, str]) -> str:
    return "\n".join(f"{key} = {value}" for key, value in values.items())


def export(kind: str = "tool", *tables: str, id: str = "x", own: str | None = None, **fields: str) -> str:
    """One good export; `fields` replaces or adds keys, `own` the lines of its kind's table, `tables` follow."""
    values = {"id": f'"{id}"', "kind": f'"{kind}"', "display_name": '"X"', **fields}
    table = f"[exports.{kind}]\n{TABLES[kind] if own is None else own}" if kind in TABLES else ""
    scratch = '[exports.permissions]\nfilesystem = "scratch"' if kind == "compactor" and not tables else ""
    return "\n".join(["[[exports]]", _lines(values), table, scratch, *tables])


def permissions(lines: str, kind: str = "tool", **fields: str) -> str:
    """A manifest with one export that asks for this."""
    return manifest(export(kind, f"[exports.permissions]\n{lines}", **fields))


def manifest(*exports: str, without: str = "", runtime: dict[str, str] | None = None, **head: str) -> str:
    """The smallest good manifest with these exports; `head` and `runtime` replace or add keys."""
    top = _lines({key: value for key, value in {**HEAD, **head}.items() if key != without})
    middle = _lines({key: value for key, value in {**RUNTIME, **(runtime or {})}.items() if key != without})
    return "\n".join([top, "[runtime]", middle, *(exports or (export(),)), ""])


def parsed(text: str, site: Any = None) -> tuple[PluginSpec | None, list[Problem]]:
    """There is a spec exactly when nothing is an error."""
    spec, found = parse(text, ROOT, {}, site or MemorySite())
    assert (spec is None) == any(problem.severity == "error" for problem in found)
    return spec, found


def reported(text: str, site: Any = None) -> list[Problem]:
    return parsed(text, site)[1]


def problems(text: str, site: Any = None) -> list[Found]:
    return [(problem.severity, problem.code, problem.path) for problem in reported(text, site)]


def good(text: str, site: Any = None) -> PluginSpec:
    """The spec of a manifest that has no problem at all."""
    spec, found = parsed(text, site)
    assert found == []
    assert spec is not None
    return spec
