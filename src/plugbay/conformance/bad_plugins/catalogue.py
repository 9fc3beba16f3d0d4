"""Loads the catalogues of bad plugins, and writes an entry as a plugin folder.

Owns the format of `programs/<contract>/catalog.json` and its validation. A written manifest is correct except for the
fields that the entry overrides.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator

from plugbay.conformance.engine import manifests
from plugbay.conformance.engine.patterns import format_value, pattern_problems
from plugbay.conformance.engine.template import fill, template_problems, text
from plugbay.contracts.registry import CONTRACTS
from plugbay.contracts.rune.messages import PROTOCOL
from plugbay.model.errors import CODES

FOLDER = Path(__file__).parent / "programs"

Situation = Literal["slow_spawn", "caller_cancels", "input_not_json"]
"""Situations that a plain call cannot create:

slow_spawn        starting the process takes longer than the launch timeout
caller_cancels    the caller cancels once the plugin has created the file `reached` in its folder
input_not_json    the caller's input has no JSON form
"""

Way = Literal["call", "fire", "compact", "run", "render", "press"]
"""How the plugin is called:

call       the export, with the input
fire       the hook for every plugin that has it, with the input as its event; the output is
           {"injections": [[plugin, text], …], "skipped": {plugin: code}}
compact    compacts a conversation of 30 messages; the output is
           {"left": how many messages, "compacted_by": plugin or null, "failures": {plugin: code}}
run        a command line in the namespace, with the input as its arguments; the output is
           {"stdout": text, "stderr": text, "exit_code": status}
render     renders the screen, 80 by 24; the output is its lines, up to the last that is not blank
press      renders the screen, sends 1,000 keys, renders it again; the output is that of the second time
"""

TIMEOUTS = frozenset({"launch", "handshake", "call", "grace", "farewell", "teardown"})

COUNTS = frozenset(
    "noise publish_refused publish_dropped service_refused events_dropped keys_dropped late_answers".split()
)
"""Counters of a host for events that fail no call."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Expected(Strict):
    """The required outcome of the call: a code or one of three others. The rest is for resident plugins."""

    code: str | None = None
    outcome: Literal["succeeded", "plugin_error", "refused"] | None = None
    """refused: an error that blames no plugin process, so none of the nine codes."""
    output: Any = None
    failure: Any = "$any"
    """A pattern for the whole failure in its public form."""
    chunks: list[Any] | None = None
    """Patterns for the pieces that came before the answer."""
    published: list[Any] | None = None
    """Patterns for the events that reached the bus, exactly these."""
    counts: dict[str, int] = {}
    """Counters and their minimum."""
    next: Literal["same", "new", "refused"] | None = None
    """What the next call reaches: the same process, a new one, or a refusal."""
    parting: str | None = None
    """How the shutdown ends: `ok`, or a failure code."""

    @model_validator(mode="after")
    def _means_something(self) -> Expected:
        if (self.code is None) == (self.outcome is None):
            raise ValueError("give either code or outcome")
        for code in (self.code, self.parting):
            if code not in (None, "ok") and code not in CODES:
                raise ValueError(f"{code!r} is not a failure code")
        problems = pattern_problems([self.failure, *(self.chunks or ()), *(self.published or ())], ())
        problems += [f"nothing is counted as {name!r}" for name in self.counts if name not in COUNTS]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def __str__(self) -> str:
        output = f" with {format_value(self.output)}" if self.says_output else ""
        return f"{self.code or self.outcome}{output}"

    @property
    def says_output(self) -> bool:
        return "output" in self.model_fields_set


class Events(Strict):
    """Events published on the bus after the plugin is ready and before it is called."""

    topic: str
    payload: Any = None
    times: int = 1


class Entry(Strict):
    """One bad plugin, how it is called, and how that must end."""

    name: str
    file: str | None
    """The program, in the catalogue's folder; None when there is nothing to run."""
    row: str
    """Which rule it is about: of rune, `5.13` is row 13 of the table of situations; of nexo, the section; of others,
    the subject."""
    what: str
    """What the plugin does wrong."""
    why: str = ""
    """The rule of the contract behind the expectation."""
    expect: Expected
    kind: str = ""
    """The case of the program, given as its argument; the entry's name where the catalogue says nothing else."""
    executable: bool = False
    situation: Situation | None = None
    timeouts: dict[str, float] = {}
    grants: list[str] = []
    manifest: dict[str, Any] = {}
    """Overrides fields of the manifest that `prepare` writes; tables are merged field by field."""
    tool: str = "bad.tool"
    """The export that is called, whatever its kind."""
    way: Way = "call"
    input: Any = {}
    context: dict[str, Any] = {}
    """The context of the call, for contracts that carry one."""
    stream: bool = False
    """Whether the call is streamed."""
    times: int = Field(default=1, ge=1)
    """How often it is called; the expectation is about the last call."""
    events: Events | None = None

    @model_validator(mode="after")
    def _can_be_used(self) -> Entry:
        problems = template_problems(self.input, (), ("text",))
        problems += [f"there is no timeout called {name!r}" for name in self.timeouts if name not in TIMEOUTS]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def plugin_id(self) -> str:
        named = (self.manifest[key] for key in ("plugin_id", "package_id", "id", "name") if key in self.manifest)
        return str(next(named, "bad.plugin"))

    @property
    def needs_visit(self) -> bool:
        """Whether the outcome of one call is not enough, so that the port has to `visit` the plugin."""
        more = {"failure", "chunks", "published", "counts", "next", "parting"}
        unusual = self.events or self.stream or self.times > 1 or self.way != "call" or self.context
        return bool(unusual or more & self.expect.model_fields_set)

    def given(self) -> Any:
        """The input with its generators filled in."""
        return fill(self.input, {}, {"text": text})


def load_catalog(contract: str, folder: Path = FOLDER) -> list[Entry]:
    """Every entry of a contract's catalogue; raises pydantic's ValidationError for a broken one."""
    entries = json.loads((folder / contract / "catalog.json").read_text("utf-8"))
    return [Entry.model_validate(_complete(entry, SETUPS[contract])) for entry in entries]


def _complete(entry: dict[str, Any], setup: Setup) -> dict[str, Any]:
    manifest = {**setup.defaults.get("manifest", {}), **entry.get("manifest", {})}
    return {"file": setup.program, "kind": entry["name"], **setup.defaults, **entry, "manifest": manifest}


def prepare(entry: Entry, tmp: Path, folder: Path = FOLDER / "rune") -> Path:
    """Write the plugin of this entry as a folder, with a manifest that is correct except for the entry's overrides."""
    contract, setup = CONTRACTS[folder.name], SETUPS[folder.name]
    root = tmp / entry.name / (entry.plugin_id if contract.program_inside else "")
    root.mkdir(parents=True)
    for file in (entry.file, *setup.helpers) if entry.file is not None else ():
        copy = shutil.copyfile(folder / file, root / Path(file).name)
        copy.chmod(0o755 if entry.executable else 0o644)
    (root / contract.manifest_files[0]).write_text(setup.manifest(entry), "utf-8")
    if contract.program_inside:
        manifests.install(root, entry.plugin_id, str(entry.file), entry.kind)
    return root


class Setup(msgspec.Struct, frozen=True):
    """How the plugins of one contract are written as folders."""

    manifest: Callable[[Entry], str]
    program: str = "plugin.py"
    """The program of an entry that names none."""
    helpers: tuple[str, ...] = ()
    """Files that the program needs beside it."""
    defaults: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Defaults of an entry."""
    environment: Callable[[Entry], dict[str, str]] = lambda entry: {}
    """Facts that the program otherwise reads from its plugin folder, for a process without one."""


# rune

INTERPRETERS: dict[str, tuple[str, ...]] = {".sh": ("/bin/sh",), ".py": ("python3", "-I", "-S")}
"""Programs run through their interpreter: a copy needs no execute bit, and none is busy while it is written."""


def _rune_manifest(entry: Entry) -> str:
    given = entry.manifest
    tools = [tool if isinstance(tool, dict) else {"name": tool} for tool in given.get("tools", ["bad.tool"])]
    manifest = {
        "plugin_id": "bad.plugin",
        "plugin_version": "1.0.0",
        "protocol_version": PROTOCOL,
        **{key: value for key, value in given.items() if key not in ("process", "tools")},
        "process": {**_process(entry), **given.get("process", {})},
        "tools": tools,
    }
    return json.dumps(manifest, indent=2)


def _process(entry: Entry) -> dict[str, Any]:
    if entry.file is None:
        return {"command": "plugbay-nothing-to-run", "args": []}
    command, *args = *INTERPRETERS.get(Path(entry.file).suffix, ()), entry.file, entry.kind
    return {"command": command, "args": args}


# nexo

NEXO_PLUGIN: dict[str, Any] = {
    "id": "bad",
    "version": "1.0.0",
    "name": "Bad",
    "description": "misbehaves on purpose",
    "min_nexo_version": ">=0.1.0",
    "channels": {"register": [{"kind": "pigeon", "adapter": "PigeonAdapter"}]},
    "extends": {
        "tools": ["bad_tool"],
        "channels": ["pigeon"],
        "llm_providers": ["parrot"],
        "memory_backends": ["shelf"],
        "hooks": ["before_message"],
    },
}
"""One export of every kind, so that every case can be triggered."""


def _nexo_manifest(entry: Entry) -> str:
    # No -I: its own folder stays on the path, for `child`.
    command = {"command": "python3", "args": ["-E", "-S", entry.file, entry.kind]}
    plugin = {**NEXO_PLUGIN, "entrypoint": command}
    for key, value in entry.manifest.items():
        base = plugin.get(key)
        plugin[key] = {**base, **value} if isinstance(base, dict) and isinstance(value, dict) else value
    return "[plugin]\n" + "".join(f"{key} = {manifests.toml(value)}\n" for key, value in plugin.items())


# kaged

KAGED_PLUGIN: dict[str, Any] = {
    "version": "1.0.0",
    "kaged_api": 1,
    "description": "misbehaves on purpose",
    "capabilities": ["kaged:storage:read", "kaged:storage:write"],
    "methods": ["bad.look.around"],
    "notifications": ["changed"],
    "hooks": ["on_session_start", "on_session_idle", "pre_compact", "post_compact"],
    "roles": ["observer", "compactor"],
    "tools": [{"name": "bad_tool", "description": "does it wrong", "parameters_schema": {"type": "object"}}],
}
"""Every export and capability of the contract, so that every case can be triggered."""


def _kaged_manifest(entry: Entry) -> str:
    command = ["python3", "-E", "-S", str(entry.file), entry.kind]
    return json.dumps({**KAGED_PLUGIN, "command": command, **entry.manifest}, indent=2)  # JSON is YAML


# ainb

AINB_PLUGIN: dict[str, dict[str, Any]] = {
    "capabilities": {
        "event_bus": ["bad.*"],
        "network": ["example.org"],
        "read_paths": ["/usr/share/plugbay-no-such"],
    },
    "provides": {"screens": ["main"], "cli_namespaces": ["bad"], "snapshots": ["bad.out"]},
    "subscribes": {"snapshots": ["bad.in"]},
}
"""One of each export and capability of the contract."""


def _ainb_manifest(entry: Entry) -> str:
    over = {key: value for key, value in entry.manifest.items() if key != "name"}
    return manifests.ainb_manifest(entry.plugin_id, {**AINB_PLUGIN, **over})


# vai

VAI_WORKER = {"display_name": "Bad", "execution_class": "worker", "max_concurrency": 4}
"""One process for all calls, so that the next call shows the effect of a case."""

VAI_EXPORTS: tuple[dict[str, Any], ...] = (
    {
        "id": "bad_tool",
        "kind": "tool",
        **VAI_WORKER,
        "permissions": {"secret_slots": ["token"]},
        "tool": {"input_schema": "any.json"},
    },
    {"id": "bad_hook", "kind": "hook", **VAI_WORKER, "hook": {"subscribes_to": ["run.completed"]}},
    {"id": "bad_compactor", "kind": "compactor", **VAI_WORKER, "compactor": {"target_context": "coding"}},
    {"id": "bad_harness", "kind": "harness", **VAI_WORKER, "harness": {"fidelity": "checkpoint"}},
)
"""One export of every kind. The effect of the tool is unknown, so the host never retries it."""


def _vai_manifest(entry: Entry) -> str:
    over = {key: value for key, value in entry.manifest.items() if key != "package_id"}
    name = entry.plugin_id.partition("/")[0]
    exports = [{**export, "id": export["id"].replace("bad", name)} for export in VAI_EXPORTS]
    return manifests.vai_manifest(entry.plugin_id, str(entry.file), entry.kind, exports, **over)


SHARED = ("child.py", "../light_json.py")

SETUPS = {
    "rune": Setup(_rune_manifest, "plugin.sh"),
    "nexo": Setup(
        _nexo_manifest,
        helpers=SHARED,
        defaults={"tool": "bad_tool", "manifest": {"id": "bad"}},
    ),
    "kaged": Setup(
        _kaged_manifest,
        helpers=SHARED,
        defaults={"tool": "bad_tool", "manifest": {"name": "bad"}},
    ),
    "ainb": Setup(
        _ainb_manifest,
        helpers=SHARED,
        defaults={"tool": "bad", "way": "run", "grants": ["event_bus=bad.*"], "manifest": {"name": "bad"}},
        environment=lambda entry: {"PLUGIN_NAME": entry.plugin_id},
    ),
    "vai": Setup(
        _vai_manifest,
        helpers=(*SHARED, "any.json"),
        defaults={"tool": "bad_tool", "grants": ["secret=token"], "manifest": {"package_id": "bad/plugin"}},
        environment=lambda entry: {"PLUGIN_MANIFEST": _vai_manifest(entry)},
    ),
}
"""The contracts with bad plugins."""
