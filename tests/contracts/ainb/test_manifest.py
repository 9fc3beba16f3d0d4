"""`manifest.toml` becomes a spec; every problem comes at once, with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.ainb.manifest import FILE_NAME, INHERITED, declared_name, not_ours, parse
from plugbay.contracts.ainb.messages import CAPABILITIES
from plugbay.contracts.ainb.sections import Lifecycle, Plugin, Provides, Setting, Subscribes
from plugbay.model.spec import Access, Export, Lifetime, RestartPolicy, SandboxRequest, SettingsSpec, Timeouts
from tests.contracts.ainb.manifests import ROOT, good, manifest, problems, reported
from tests.support.requirements import requirement

WHOLE = """# Every section there is.
[plugin]
name = "burndown"
version = "2.0.0"
abi_version = 2
description = "What was used, day by day"

[capabilities]
read_sessions = true
write_plugin_data = true
event_bus = true
network = ["api.openai.com"]
spawn_subprocess = false
read_claude_logs = false
read_codex_logs = false

[provides]
screens = ["analytics", "budget"]
commands = ["/usage", "/burndown"]
cli_namespaces = ["usage"]
snapshots = ["burndown.totals"]

[subscribes]
snapshots = ["sessions.usage_data", "ui.theme"]
latest_state = ["ui.theme"]

[lifecycle]
spawn = "eager"
idle_reap_secs = 90
"""


@requirement("ainb:manifest-file")
def test_a_manifest_becomes_a_spec() -> None:
    spec = good(WHOLE)
    assert FILE_NAME == "manifest.toml"
    assert (spec.id, spec.name, spec.version, spec.contract) == ("burndown", "burndown", "2.0.0", "ainb")
    assert (spec.root, spec.cwd, spec.description) == (ROOT, ROOT, "What was used, day by day")
    assert spec.exports == (
        Export("screen", "analytics"),
        Export("screen", "budget"),
        Export("cli_namespace", "usage"),
    )
    assert spec.commands == ("/usage", "/burndown")
    assert spec.capabilities == ("read_sessions", "write_plugin_data", "event_bus", "network=api.openai.com")
    assert spec.sandbox == SandboxRequest()
    assert spec.access[-1] == Access("network", "api.openai.com", capability="network=api.openai.com")
    assert (spec.snapshots, spec.latest_state) == (("sessions.usage_data", "ui.theme"), ("ui.theme",))
    assert (spec.subscribes, spec.publishes, spec.settings) == ((), (), SettingsSpec())


@requirement("ainb:manifest-program")
def test_the_program_is_the_file_in_the_folder_that_has_the_plugins_name() -> None:
    spec = good(manifest())
    assert spec.command == ("/plugins/burndown/burndown",)
    assert (spec.env, spec.env_inherit) == ((), INHERITED)
    assert "PATH" in INHERITED
    assert spec.env_facts == (("PATH", "search.path"),)


@requirement("ainb:manifest-lifecycle")
@pytest.mark.parametrize(
    ("lines", "eager", "idle"),
    [
        ("", False, 600.0),
        ("spawn = 'lazy'", False, 600.0),
        ("spawn = 'eager'", True, 600.0),
        ("idle_reap_secs = 0", False, None),
        ("idle_reap_secs = 1", False, 1.0),
    ],
)
def test_an_eager_plugin_is_kept_up_and_an_idle_one_is_stopped(lines: str, eager: bool, idle: float | None) -> None:
    spec = good(manifest(f"[lifecycle]\n{lines}"))
    assert (spec.eager, spec.respawn, spec.idle_seconds) == (eager, eager, idle)


@requirement("ainb:manifest-patience")
def test_the_contracts_times_are_in_the_spec() -> None:
    spec = good(manifest())
    assert spec.lifetime == Lifetime.RESIDENT
    assert spec.exit_is_failure
    assert spec.timeouts == Timeouts(handshake=15, call=30, farewell=3, teardown=2, term=2)
    assert spec.patience == {"Render": 2.0}
    patience = {"failures": 2, "window": 60, "healthy_after": 60}
    assert spec.restart == RestartPolicy(1, 4, 16, jitter=0, refusal_is_final=False, **patience)


@requirement("ainb:manifest-published-shape")
@pytest.mark.parametrize(
    ("name", "body", "capabilities"),
    [
        (
            "panel",
            '[capabilities]\nevent_stream_subscribe = ["workspace:*"]\nspawn_managed_subprocess = ["a-daemon"]\n'
            'unix_socket_dial = ["~/.a/b.sock", "${XDG_RUNTIME_DIR}/b.sock"]\n"secrets:read" = ["a_key"]\n'
            '"workspace:write" = true\nevent_bus = true\nwrite_plugin_data = true\n'
            '[provides]\nscreens = ["panel"]\ncommands = ["/panel"]\ncli_namespaces = ["panel"]\nsnapshots = []\n'
            "[subscribes]\nsnapshots = []\n[lifecycle]\nspawn = 'lazy'\nidle_reap_secs = 0",
            8,
        ),
        (
            "notes",
            '[capabilities]\nread_paths = ["~/.notes", "~/.cache/x"]\nspawn_subprocess = ["x", "notes"]\n'
            "event_bus = true\n[provides]\nscreens = ['notes']\n"
            '[[config]]\nkey = "dir"\nkind = "path"\nlabel = "Folder"\ndefault = "~/.notes"',
            5,
        ),
        (
            "reader",
            "[capabilities]\nread_claude_logs = true\nread_codex_logs = true\nevent_bus = true\nnetwork = []\n"
            "[provides]\nsnapshots = ['usage']\n[subscribes]\nsnapshots = ['refresh']\n[lifecycle]\nspawn = 'eager'",
            3,
        ),
    ],
)
def test_manifests_shaped_like_the_published_ones_load(name: str, body: str, capabilities: int) -> None:
    spec, found = parse(manifest(body, name=f'"{name}"'), Path("/plugins") / name)
    assert found == []
    assert spec is not None
    assert len(spec.capabilities) == capabilities


def test_what_is_listed_twice_is_there_once() -> None:
    spec, _ = parse(manifest("[provides]\nscreens = ['a', 'a']\ncommands = ['/b', '/b']"), ROOT)
    assert spec is not None
    assert (spec.exports, spec.commands) == ((Export("screen", "a"),), ("/b",))


FAULTS = """[plugin]
name = "usage"
version = "2.0"
abi_version = 3
colour = "red"

[capabilities]
network = "all"
read_paths = [
  "notes",
]

[provides]
screens = [""]
cli_namespaces = "usage"

[subscribes]
topics = []
latest_state = ["x"]

[lifecycle]
spawn = "soon"
idle_reap_secs = "600"

[[config]]
key = "a"
kind = "int"
label = "A"
default = "b"
"""


@requirement("ainb:manifest-all-problems")
def test_every_mistake_is_reported_at_once_in_the_order_of_the_lines() -> None:
    assert [(problem.line, problem.code, problem.path) for problem in reported(FAULTS)] == [
        (2, "name_mismatch", "plugin.name"),
        (3, "version_not_semver", "plugin.version"),
        (4, "abi_unsupported", "plugin.abi_version"),
        (5, "unknown_key", "plugin.colour"),
        (8, "invalid_grant", "capabilities.network"),
        (9, "invalid_grant", "capabilities.read_paths[0]"),
        (14, "invalid_name", "provides.screens[0]"),
        (15, "invalid_type", "provides.cli_namespaces"),
        (18, "unknown_key", "subscribes.topics"),
        (19, "latest_state_stray", "subscribes.latest_state[0]"),
        (22, "invalid_value", "lifecycle.spawn"),
        (23, "invalid_type", "lifecycle.idle_reap_secs"),
        (29, "setting_default", "config[0].default"),
    ]


@pytest.mark.parametrize("line", ["name = 'again'", "a = ", "[plugin]", "= 1"])
def test_text_that_is_no_toml_is_one_problem_with_its_line(line: str) -> None:
    (found,) = reported(manifest(line))
    assert (found.code, found.line) == ("parse_error", 5)


@requirement("ainb:manifest-recognised")
@pytest.mark.parametrize(
    "text",
    [
        manifest(),
        "[plugin]\nname = 'a'",
        "plugin = {abi_version = 2}",
        "plugin.name = 1",
        "[plugin]\nname = ",
        "a = \n  [ plugin ]",
    ],
)
def test_a_plugins_manifest_is_recognised_however_broken_it_is(text: str) -> None:
    assert not_ours(text) is None


@requirement("ainb:manifest-recognised")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[package]\nname = 'a'",
        "plugin = 'a'",
        "[plugin]\nid = 'a'",
        "[[plugin]]\nname = 'a'",
        "[plugins]\na = ",
        "\0",
    ],
)
def test_a_file_of_that_name_that_is_something_else_is_not_a_manifest(text: str) -> None:
    assert not_ours(text) == "it has no [plugin] table with a name and an abi_version"
    assert problems(text)[0][0] == "error"


@given(st.text())
def test_no_text_makes_it_raise(text: str) -> None:
    spec, found = parse(text, ROOT, {})
    assert spec is None
    assert found
    not_ours(text)


WORDS = "burndown host 2.0.0 lazy eager path enum int bool string true ~/a /a .. a=b network * [::1]:1 a:99999".split()
SCALARS = (
    st.booleans()
    | st.integers()
    | st.integers(0, 3)
    | st.floats()
    | st.dates()
    | st.times()
    | st.datetimes()
    | st.text(max_size=8)
    | st.sampled_from(WORDS)
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def table(names: Any, value: Any) -> Any:
    return st.fixed_dictionaries({}, optional=dict.fromkeys([*names, "other"], value)) | value


TEXTS = st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=3)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "plugin": table(Plugin.model_fields, ANYTHING),
        "capabilities": table(CAPABILITIES, ANYTHING | TEXTS | st.booleans()),
        "provides": table(Provides.model_fields, ANYTHING | TEXTS),
        "subscribes": table(Subscribes.model_fields, ANYTHING | TEXTS),
        "lifecycle": table(Lifecycle.model_fields, ANYTHING),
        "config": st.lists(table(Setting.model_fields, ANYTHING | TEXTS), max_size=2) | ANYTHING,
        "other": ANYTHING,
    },
)
HEAD = {"name": "burndown", "version": "2.0.0", "abi_version": 2}


@given(DOCUMENTS)
def test_no_document_makes_it_raise(value: dict[str, Any]) -> None:
    for document in (value, {**value, "plugin": HEAD}):
        text = tomlkit.dumps(document)
        spec, found = parse(text, ROOT, {})
        assert (spec is None) == any(problem.severity == "error" for problem in found)
        not_ours(text)


@given(st.dictionaries(st.sampled_from(CAPABILITIES), st.booleans() | TEXTS))
def test_what_is_allowed_was_asked_for_whatever_the_grants_say(grants: dict[str, Any]) -> None:
    spec, _ = parse(tomlkit.dumps({"plugin": HEAD, "capabilities": grants}), ROOT, {})
    if spec is None:
        return
    for item in spec.access:
        assert item.capability in spec.capabilities
        assert item.target != "" or grants[item.capability] is True


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('[plugin]\nname = "notes"', "notes"),
        ("[plugin]\nname = 1", None),
        ("[plugin]", None),
        ("plugin = 1", None),
        ("", None),
        ("[", None),
    ],
)
def test_the_name_of_the_folder_is_known_before_the_rest_is_judged(text: str, name: str | None) -> None:
    assert declared_name(text) == name
