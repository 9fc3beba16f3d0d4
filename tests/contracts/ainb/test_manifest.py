"""`manifest.toml` becomes a spec; every problem comes at once, with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.ainb.manifest import (
    INHERITED,
    Lifecycle,
    Manifest,
    Plugin,
    Provides,
    Setting,
    Subscribes,
    declared_name,
    not_ours,
    parse,
)
from plugbay.contracts.ainb.messages import CAPABILITIES
from plugbay.contracts.ainb.spec import FILE_NAME
from plugbay.contracts.schemas import compile_schema
from plugbay.host.config.settings import check_config, defaults
from plugbay.model.spec import Access, Export, Knob, Lifetime, RestartPolicy, SandboxRequest, SettingsSpec, Timeouts
from tests.contracts.ainb.manifests import ROOT, good, manifest, problems, reported, setting
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
    assert spec.sandbox == SandboxRequest(fenced=True)
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


@requirement("ainb:manifest-name")
def test_a_plugin_has_the_name_of_its_folder() -> None:
    (found,) = reported(manifest(), Path("/plugins/usage"))
    assert (found.severity, found.code, found.path, found.line) == ("error", "name_mismatch", "plugin.name", 2)
    assert "'burndown'" in found.message
    assert "'usage'" in found.message
    assert reported(manifest(), Path("/elsewhere/burndown")) == []


@requirement("ainb:manifest-name-safe")
@pytest.mark.parametrize(
    "name", ["", " ", ".", "..", ".hidden", "a/b", "../a", "/bin/sh", "a\\\\b", "a\\nb", "x" * 201]
)
def test_a_name_never_leads_out_of_its_folder(name: str) -> None:
    assert problems(manifest(name=f'"{name}"')) == [("error", "invalid_name", "plugin.name")]


@requirement("ainb:manifest-name-reserved")
def test_no_plugin_is_called_host() -> None:
    assert problems(manifest(name='"host"'), Path("/plugins/host")) == [("error", "reserved_name", "plugin.name")]
    assert problems(manifest(name='"hosts"'), Path("/plugins/hosts")) == []


@requirement("ainb:manifest-semver")
@pytest.mark.parametrize(
    "version", ["1", "1.2", "1.2.3.4", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "", " 1.2.3"]
)
def test_a_version_that_is_not_semantic_is_an_error(version: str) -> None:
    assert problems(manifest(version=f'"{version}"')) == [("error", "version_not_semver", "plugin.version")]


@requirement("ainb:manifest-semver")
@pytest.mark.parametrize("version", ["0.0.0", "1.2.3", "1.2.3-rc.1", "1.2.3-0a.x-y", "1.2.3+build.01", "1.0.0-1+a"])
def test_every_semantic_version_will_do(version: str) -> None:
    assert good(manifest(version=f'"{version}"')).version == version


@requirement("ainb:manifest-abi")
@pytest.mark.parametrize(
    ("abi", "words"),
    [("0", "must be rebuilt"), ("1", "must be rebuilt"), ("3", "a newer host"), ("4294967295", "a newer host")],
)
def test_another_abi_than_2_is_an_error_that_says_what_to_do(abi: str, words: str) -> None:
    (found,) = reported(manifest(abi_version=abi))
    assert (found.severity, found.code, found.path, found.line) == ("error", "abi_unsupported", "plugin.abi_version", 4)
    assert f"ABI {abi}, this host has ABI 2" in found.message
    assert words in found.message


@requirement("ainb:manifest-names")
@pytest.mark.parametrize("field", ["screens", "commands", "cli_namespaces"])
def test_what_is_provided_has_a_name_and_is_there_once(field: str) -> None:
    found = problems(manifest(f'[provides]\n{field} = ["", "a\\tb", "x", "x"]'))
    assert ("error", "invalid_name", f"provides.{field}[0]") in found
    assert ("error", "invalid_name", f"provides.{field}[1]") in found
    assert ("warning", "duplicate", f"provides.{field}[3]") in found
    assert problems(manifest(f'[provides]\n{field} = ["x", "y"]')) == []


@requirement("ainb:manifest-names")
@pytest.mark.parametrize("name", ["--help", "-x", "two words", " usage", "usage "])
def test_a_cli_namespace_is_one_word(name: str) -> None:
    found = problems(manifest(f'[provides]\nscreens = ["{name}"]\ncli_namespaces = ["{name}"]'))
    assert found == [("error", "invalid_name", "provides.cli_namespaces[0]")]


@requirement("ainb:manifest-latest-state")
def test_latest_state_names_only_topics_that_are_subscribed_to() -> None:
    bus = "[capabilities]\nevent_bus = true\n[subscribes]\n"
    stray = manifest(f'{bus}snapshots = ["a"]\nlatest_state = ["a", "b"]')
    assert problems(stray) == [("error", "latest_state_stray", "subscribes.latest_state[1]")]
    spec = good(manifest(f'{bus}snapshots = ["a", "b"]\nlatest_state = ["b"]'))
    assert (spec.snapshots, spec.latest_state) == (("a", "b"), ("b",))


@requirement("ainb:manifest-needs-event-bus")
@pytest.mark.parametrize(("section", "words"), [("provides", "published"), ("subscribes", "delivered")])
def test_snapshots_without_the_bus_are_warned_about(section: str, words: str) -> None:
    body = f'[{section}]\nsnapshots = ["usage.data", "usage.day"]\n[capabilities]\n'
    assert problems(manifest(body + "event_bus = true")) == []
    assert problems(manifest(body + 'event_bus = ["usage.*"]')) == []
    (found,) = reported(manifest(body + 'event_bus = ["usage.data"]'))
    assert (found.severity, found.code, found.path) == ("warning", "needs_event_bus", f"{section}.snapshots[1]")
    assert words in found.message
    assert len(problems(manifest(body))) == 2


@requirement("ainb:manifest-unknown-keys")
@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        (manifest(colour='"red"'), "plugin.colour", "ignored"),
        (manifest(descripton='"x"'), "plugin.descripton", "did you mean 'description'?"),
        (manifest("[provides]\nsidebars = []"), "provides.sidebars", "ignored"),
        (manifest("[lifecycle]\nidle_reap_sec = 1"), "lifecycle.idle_reap_sec", "did you mean 'idle_reap_secs'?"),
        (manifest("[widgets]\na = 1"), "widgets", "ignored"),
        (manifest("[subscribes]\ntopics = ['a']"), "subscribes.topics", "newer ainb hosts refuse"),
        (manifest("[subscribes]\nsnapshot = []"), "subscribes.snapshot", "did you mean 'snapshots'?"),
    ],
)
def test_a_key_nobody_knows_is_ignored_with_a_warning(text: str, path: str, words: str) -> None:
    (found,) = reported(text)
    assert (found.severity, found.code, found.path) == ("warning", "unknown_key", path)
    assert words in found.message


@requirement("ainb:manifest-leftovers")
def test_what_older_contracts_left_behind_is_accepted_without_a_word() -> None:
    leftovers = {"ainb_min_version": '"1.1.0"', "author": '"somebody"', "license": '"MIT"'}
    body = '[provides]\nstatusline = ["bar"]\npreferred_min_size = [40, 12]'
    assert problems(manifest(body, **leftovers)) == []


@requirement("ainb:manifest-needs-event-bus")
def test_a_topic_that_only_the_host_publishes_is_warned_about() -> None:
    body = 'event_bus = ["fleet.x"]\n[{}]\nsnapshots = ["fleet.x"]'
    (found,) = reported(manifest("[capabilities]\n" + body.format("provides")))
    assert (found.severity, found.code, found.path) == ("warning", "host_only_topic", "provides.snapshots[0]")
    assert problems(manifest("[capabilities]\n" + body.format("subscribes"))) == []


@requirement("ainb:manifest-required")
@pytest.mark.parametrize("field", ["name", "version", "abi_version"])
def test_a_plugin_says_its_name_its_version_and_its_abi(field: str) -> None:
    assert problems(manifest(without=field)) == [("error", "missing_field", f"plugin.{field}")]
    assert problems(manifest()) == []


@requirement("ainb:manifest-required")
def test_only_the_plugin_table_is_needed() -> None:
    found = Manifest.model_validate({"plugin": {"name": "a", "version": "1.0.0", "abi_version": 2}}, strict=True)
    assert (found.capabilities, found.config) == ({}, [])
    assert (found.provides, found.subscribes, found.lifecycle) == (Provides(), Subscribes(), Lifecycle())
    assert (found.lifecycle.spawn, found.lifecycle.idle_reap_secs) == ("lazy", 600)
    assert problems("") == [("error", "missing_field", "plugin")]


@requirement("ainb:manifest-types")
@pytest.mark.parametrize(
    ("body", "path"),
    [
        ("[provides]\nscreens = 'main'", "provides.screens"),
        ("[provides]\nscreens = [1]", "provides.screens[0]"),
        ("[provides]\ncommands = true", "provides.commands"),
        ("[provides]\ncli_namespaces = {}", "provides.cli_namespaces"),
        ("[provides]\nsnapshots = [true]", "provides.snapshots[0]"),
        ("[subscribes]\nsnapshots = 'a'", "subscribes.snapshots"),
        ("[subscribes]\nlatest_state = [1]", "subscribes.latest_state[0]"),
        ("[lifecycle]\nspawn = true", "lifecycle.spawn"),
        ("[lifecycle]\nspawn = 'Lazy'", "lifecycle.spawn"),
        ("[lifecycle]\nidle_reap_secs = -1", "lifecycle.idle_reap_secs"),
        ("[lifecycle]\nidle_reap_secs = 4294967296", "lifecycle.idle_reap_secs"),
        ("[lifecycle]\nidle_reap_secs = 1.5", "lifecycle.idle_reap_secs"),
        ("[lifecycle]\nidle_reap_secs = true", "lifecycle.idle_reap_secs"),
        ("[config]\nkey = 'a'", "config"),
        ("[[config]]\nkey = 'a'\nkind = 'float'\nlabel = 'A'", "config[0].kind"),
        ("[[config]]\nkey = 'a'\nkind = 'int'\nlabel = 'A'\ndefault = 3", "config[0].default"),
        ("[[config]]\nkind = 'int'\nlabel = 'A'", "config[0].key"),
        ("[[config]]\nkey = 'a'\nkind = 'int'", "config[0].label"),
    ],
)
def test_a_value_of_another_type_is_an_error(body: str, path: str) -> None:
    assert [(severity, where) for severity, _, where in problems(manifest(body))] == [("error", path)]


@requirement("ainb:manifest-types")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "1"),
        ("version", "2.0"),
        ("description", "[]"),
        ("abi_version", '"2"'),
        ("abi_version", "2.0"),
        ("abi_version", "true"),
        ("abi_version", "-2"),
    ],
)
def test_the_plugin_table_has_texts_and_one_integer(field: str, value: str) -> None:
    found = problems(manifest(**{field: value}))
    assert [(severity, path) for severity, _, path in found] == [("error", f"plugin.{field}")]


def test_the_largest_number_of_seconds_fits_32_bits() -> None:
    assert good(manifest("[lifecycle]\nidle_reap_secs = 4294967295")).idle_seconds == 4294967295.0


FIVE = """
[[config]]
key = "notes_dir"
kind = "path"
label = "Where notes are"
default = "~/notes"
[[config]]
key = "title"
kind = "string"
label = "Title"
[[config]]
key = "loud"
kind = "bool"
label = "Loud"
default = "true"
[[config]]
key = "mode"
kind = "enum"
label = "Mode"
default = "fast"
choices = ["fast", "safe"]
[[config]]
key = "days"
kind = "int"
label = "Days"
default = "-7"
"""


@requirement("ainb:manifest-config")
def test_each_kind_is_a_type_of_knob() -> None:
    assert good(manifest(FIVE)).settings.knobs == (
        Knob("notes_dir", "path", "Where notes are", "notes_dir", default="~/notes"),
        Knob("title", "text", "Title", "title", default=""),
        Knob("loud", "boolean", "Loud", "loud", default=True),
        Knob("mode", "enum", "Mode", "mode", default="fast", facts={"values": ["fast", "safe"]}),
        Knob("days", "int_range", "Days", "days", default=-7),
    )


@requirement("ainb:manifest-config")
def test_a_plugin_gets_its_defaults_as_what_their_kinds_say() -> None:
    spec = good(manifest(FIVE)).settings
    config = defaults(spec)
    assert config == {"notes_dir": "~/notes", "title": "", "loud": True, "mode": "fast", "days": -7}
    assert check_config(spec, config) == []
    validator = compile_schema(spec.config_schema)
    for wrong in ({"days": "7"}, {"loud": "true"}, {"mode": "slow"}, {"unknown": 1}):
        assert not validator.is_valid({**config, **wrong})


def test_without_settings_there_is_no_config_at_all() -> None:
    assert good(manifest()).settings == SettingsSpec()


@pytest.mark.parametrize("lines", ["kind = 'path'", "kind = 'bool'", "kind = 'int'", "kind = 'enum'\nchoices = ['a']"])
def test_a_setting_without_a_default_has_no_value_until_somebody_gives_it_one(lines: str) -> None:
    assert defaults(good(setting(lines)).settings) == {}


@requirement("ainb:manifest-config-defaults")
@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("kind = 'int'\ndefault = 'seven'", "whole number, got 'seven'"),
        ("kind = 'int'\ndefault = '1.5'", "whole number, got '1.5'"),
        ("kind = 'bool'\ndefault = 'yes'", "true or false, got 'yes'"),
        ("kind = 'enum'\nchoices = ['a']\ndefault = 'b'", "one of a, got 'b'"),
        ('kind = "string"\ndefault = "a\\nb"', "one line"),
    ],
)
def test_a_default_that_does_not_fit_its_kind_is_an_error(lines: str, words: str) -> None:
    (found,) = reported(setting(lines))
    assert (found.severity, found.code, found.path) == ("error", "setting_default", "config[0].default")
    assert words in found.message


@requirement("ainb:manifest-config")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (setting("kind = 'enum'"), ("error", "missing_field", "config[0].choices")),
        (setting("kind = 'int'\nchoices = ['1']"), ("warning", "choices_ignored", "config[0].choices")),
        (setting("kind = 'int'\nmin = 3"), ("warning", "unknown_key", "config[0].min")),
        (
            setting("kind = 'int'\n[[config]]\nkey = 'k'\nkind = 'bool'\nlabel = 'B'"),
            ("error", "duplicate_setting", "config[1].key"),
        ),
        (manifest("[[config]]\nkey = ' '\nkind = 'int'\nlabel = 'A'"), ("error", "invalid_name", "config[0].key")),
    ],
)
def test_a_setting_that_cannot_be_set_is_reported(body: str, expected: tuple[str, str, str]) -> None:
    assert problems(body) == [expected]
