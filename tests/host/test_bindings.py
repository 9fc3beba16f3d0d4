"""Settings, secrets, environment and decisions as a plugin gets them. Real files, real children, both loops."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from plugbay import Code, Host
from plugbay.host.authorization.policy import Decision
from plugbay.host.bindings import MAX_SETTINGS, Bindings, Options
from plugbay.host.config import settings
from plugbay.host.config.config import Config, parse
from plugbay.host.discovery.folders import inspect
from plugbay.host.request import ExportBinding
from plugbay.host.request import Policy as ExportPolicy
from plugbay.model.errors import Failure
from plugbay.model.lifecycle import State
from plugbay.model.spec import SandboxRequest
from plugbay.process.limits import most_open_files
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run, run_on
from tests.support.requirements import requirement
from tests.support.vai import export, write_vai_plugin

SETTINGS: dict[str, Any] = {
    "config_schema": {
        "type": "object",
        "properties": {"limit": {"type": "integer", "default": 3, "maximum": 9}, "mode": {"enum": ["a", "b"]}},
        "additionalProperties": False,
    },
    "system_config_schema": {"type": "object", "properties": {"key": {"type": "string", "minLength": 3}}},
}
SHOWS = (
    'def tool(name, params, m):\n    reply(m, {k: greeting.get(k) for k in ("config", "system_config", "projects")})\n'
)


def bindings(text: str = "", state: Path | None = None, **options: Any) -> Bindings:
    return Bindings(parse(text), Options(**options), state)


@pytest.mark.parametrize(
    ("options", "decision"),
    [
        ({}, Decision(True, None)),
        ({"grants": frozenset({"x"})}, Decision(True, frozenset({"x"}))),
        ({"grant_all": True}, Decision(True, None, grant_all=True)),
        ({"unconfined": True}, Decision(True, None)),
    ],
)
def test_the_options_of_a_host_add_to_what_the_operator_decided(options: dict[str, Any], decision: Decision) -> None:
    assert bindings(**options).decide("p") == decision


def test_grants_of_the_host_are_added_to_those_of_the_file() -> None:
    text = '[plugins.p]\ngrants = ["a"]\n'
    assert bindings(text, grants=frozenset({"b"})).decide("p").grants == frozenset({"a", "b"})


@requirement("kaged:config-delivered", "kaged:config-split")
def test_config_and_secrets_reach_the_plugin_apart_from_each_other(run: Run, tmp_path: Path) -> None:
    root = write_kaged_plugin(tmp_path, body=SHOWS, **SETTINGS)
    state = tmp_path / "state"
    settings.save_config(state, "p", {"mode": "b"})
    settings.save_secrets(state, "p", {"key": "s3cret"})
    config = tmp_path / "plugbay.toml"
    config.write_text('[project]\nid = "shop"\n[host]\nstate_dir = "state"\n[plugins.p]\nconfig = { limit = 5 }\n')

    async def main() -> None:
        async with Host.load(root, config=config) as host:
            assert await host.call("echo", {}) == {
                "config": {"limit": 5, "mode": "b"},
                "system_config": {"key": "s3cret"},
                "projects": ["shop"],
            }
            assert "s3cret" not in repr(host.calls.supervisors["p"].binding)

    run(main)


def test_a_reload_takes_over_what_was_set_meanwhile(run: Run, tmp_path: Path) -> None:
    root = write_kaged_plugin(tmp_path, body=SHOWS, **SETTINGS)
    state = tmp_path / "state"

    async def main() -> None:
        async with Host.load(root, state_dir=state) as host:
            assert (await host.call("echo", {}))["config"] == {"limit": 3}
            settings.save_config(state, "p", {"limit": 7})
            assert (await host.call("echo", {}))["config"] == {"limit": 3}
            await host.reload("p")
            assert (await host.call("echo", {}))["config"] == {"limit": 7}

    run(main)


@requirement("kaged:config-validated")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("config = { limit = 10 }", "limit"),
        ("config = { limitt = 1 }", "limitt"),
        ('config = { mode = "c" }', "mode"),
        ("config = { limit = 2026-01-02T03:04:05Z }", "limit"),
        ("config = { limit = nan }", "limit"),
    ],
)
def test_settings_that_do_not_fit_keep_the_plugin_from_starting(
    run: Run, tmp_path: Path, given: str, words: str
) -> None:
    root = write_kaged_plugin(tmp_path, body=SHOWS, **SETTINGS)
    config = tmp_path / "plugbay.toml"
    config.write_text(f"[plugins.p]\n{given}\n")

    async def main() -> None:
        async with Host.load(root, config=config) as host:
            failure = (await host.attempt("echo")).failure
            assert failure is not None
            assert failure.code in (Code.LAUNCH_FAILED, Code.QUARANTINED)
            assert words in failure.message
            assert "plugbay config show p" in failure.detail["hint"] or failure.code == Code.QUARANTINED
            status = host.plugins()[0]
            assert (status.state, status.generation) == (State.QUARANTINED, 0)

    run(main)


@requirement("kaged:secrets-never-told")
def test_an_invalid_secret_is_refused_without_showing_it(run: Run, tmp_path: Path) -> None:
    root = write_kaged_plugin(tmp_path, body=SHOWS, **SETTINGS)
    state = tmp_path / "state"
    settings.save_secrets(state, "p", {"key": "s3"})

    async def main() -> None:
        async with Host.load(root, state_dir=state) as host:
            failure = (await host.attempt("echo")).failure
            assert failure is not None
            assert "key" in failure.message
            assert "s3" not in str(failure.to_json()).replace("minLength: 3", "")

    run(main)


@requirement("kaged:environment")
def test_the_plugin_gets_the_project_in_its_environment(run: Run, tmp_path: Path) -> None:
    body = 'def tool(name, params, m):\n    reply(m, {k: v for k, v in os.environ.items() if k.startswith("KAGED_")})\n'
    root = write_kaged_plugin(tmp_path, body=body)
    config = tmp_path / "plugbay.toml"
    config.write_text('[project]\nid = "shop"\nroot = "work"\n[host]\nstate_dir = "state"\n')

    async def main() -> None:
        async with Host.load(root, config=config) as host:
            assert await host.call("echo", {}) == {
                "KAGED_PROJECT_ID": "shop",
                "KAGED_PROJECT_ROOT": str(tmp_path / "work"),
                "KAGED_CONFIG_ROOT": str(tmp_path / "state" / "plugins" / "p"),
            }
            assert (tmp_path / "state" / "plugins" / "p").stat().st_mode & 0o777 == 0o700

    run(main)


def test_a_plugin_without_settings_needs_none(tmp_path: Path) -> None:
    spec = inspect(write_kaged_plugin(tmp_path)).spec
    assert spec is not None
    binding = Bindings(Config(), Options(), None).bind(spec)
    assert (binding.config, binding.secrets, binding.refusal) == (None, None, None)


def test_settings_larger_than_a_greeting_are_refused(tmp_path: Path) -> None:
    spec = inspect(write_kaged_plugin(tmp_path, config_schema={"type": "object"})).spec
    assert spec is not None
    text = f'[plugins.p]\nconfig = {{ fill = "{"x" * MAX_SETTINGS}" }}\n'
    refusal = bindings(text).bind(spec).refusal
    assert refusal is not None and "at most" in refusal.message


@requirement("kaged:config-secrets-apart")
def test_a_secret_in_the_config_keeps_the_plugin_from_starting_and_is_not_shown(tmp_path: Path) -> None:
    spec = inspect(write_kaged_plugin(tmp_path, **{**SETTINGS, "config_schema": {"type": "object"}})).spec
    assert spec is not None
    binding = bindings('[plugins.p]\nconfig = { key = "open sesame" }\n').bind(spec)
    assert binding.refusal is not None and "key: is a secret" in binding.refusal.message
    assert "sesame" not in repr(binding)


def test_a_folder_that_cannot_be_made_keeps_only_those_who_need_it_from_starting(tmp_path: Path) -> None:
    spec = inspect(write_kaged_plugin(tmp_path)).spec
    assert spec is not None
    (tmp_path / "plugins").write_text("in the way")
    refusal = bindings(state=tmp_path).bind(spec).refusal
    assert refusal is not None
    assert (refusal.code, "cannot be created" in refusal.message) == (Code.LAUNCH_FAILED, True)


@requirement("ainb:host-log-levels")
@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("", "info"),
        ('[host]\nlog_level = "warn"\n', "warn"),
        ('[plugins.p]\nlog_level = "debug"\n', "debug"),
        ('[host]\nlog_level = "warn"\n[plugins.p]\nlog_level = "trace"\n', "trace"),
        ('[host]\nlog_level = "warn"\n[plugins.other]\nlog_level = "trace"\n', "warn"),
    ],
)
def test_the_level_of_a_plugins_log_is_its_own_or_the_hosts(tmp_path: Path, text: str, level: str) -> None:
    spec = inspect(write_kaged_plugin(tmp_path)).spec
    assert spec is not None
    assert bindings(text).bind(spec).log_level == level


@requirement("vai:host-config")
def test_an_export_is_bound_with_its_part_of_the_config_the_secrets_and_what_the_operator_narrows(
    tmp_path: Path,
) -> None:
    schema = {"type": "object", "properties": {"limit": {"type": "integer"}}}
    exports = [
        export(config_schema="schemas/config.json", permissions={"secret_slots": ["key"]}, execution_class="inline"),
        export("u"),
    ]
    spec = inspect(write_vai_plugin(tmp_path, exports=exports, schemas={"config": schema})).spec
    assert spec is not None
    settings.save_secrets(tmp_path, "acme/p", {"key": "0123456"})
    text = """
    [project]
    id = "shop"
    [plugins."acme/p"]
    execution_class = "worker"
    timeouts = { call = 1.5 }
    config = { t = { limit = 3 } }
    """
    ours = bindings(text, tmp_path)
    policy = ExportPolicy(timeout_ms=1500, execution_class="worker")
    both = [ours.for_export(spec, item) for item in spec.exports]
    secrets = {"key": "0123456"}
    assert both[0] == ExportBinding(config={"limit": 3}, secrets=secrets, policy=policy, project_id="shop")
    assert both[1] == ExportBinding(secrets=secrets, policy=policy, project_id="shop")
    assert "0123456" not in repr(both)
    bound = ours.bind(spec)
    assert bound.refusal is None
    assert [item.facts["execution_class"] for item in bound.spec.exports] == ["worker", "isolated"]
    wrong = bindings('[plugins."acme/p"]\nconfig = { t = { limit = "three" } }', tmp_path)
    assert isinstance(wrong.for_export(spec, spec.exports[0]), Failure)


def settle(*paths: Path) -> None:
    """Wait for a tick of the clock that stamps files: settings that have just changed are read again each time."""
    while not settings.is_settled(tuple((path.lstat().st_ctime_ns,) for path in paths), time.time_ns()):
        time.sleep(0.001)


@pytest.mark.parametrize("change", ["replaced", "in place", "readable by others", "folder", "removed"])
def test_the_binding_of_an_export_is_kept_until_one_of_its_files_changes(tmp_path: Path, change: str) -> None:
    spec = inspect(write_vai_plugin(tmp_path, exports=[export(permissions={"secret_slots": ["key"]})])).spec
    assert spec is not None
    ours, tool = bindings(state=tmp_path), spec.exports[0]
    settings.save_secrets(tmp_path, spec.id, {"key": "0123456"})
    file = tmp_path / "secrets" / settings.file_name(spec.id)
    settle(file, file.parent)
    first = ours.for_export(spec, tool)
    assert isinstance(first, ExportBinding)
    assert ours.for_export(spec, tool) is first
    match change:
        case "replaced":
            settings.save_secrets(tmp_path, spec.id, {"key": "6543210"})
        case "in place":
            file.write_text('{"key": "6543210"}')
        case "readable by others":
            file.chmod(0o644)
        case "folder":
            file.parent.chmod(0o755)
        case _:
            file.unlink()
    second = ours.for_export(spec, tool)
    if change in ("readable by others", "folder"):
        assert isinstance(second, Failure)
    else:
        assert isinstance(second, ExportBinding)
        assert second.secrets == ({} if change == "removed" else {"key": "6543210"})


def test_the_binding_of_an_export_follows_plugbay_toml_and_a_new_release(tmp_path: Path) -> None:
    spec = inspect(write_vai_plugin(tmp_path, exports=[export()])).spec
    assert spec is not None
    ours, tool = bindings(state=tmp_path / "state"), spec.exports[0]
    first = ours.for_export(spec, tool)
    assert isinstance(first, ExportBinding)
    assert ours.for_export(spec, tool) is first
    assert ours.for_export(replace(spec, version="2.0.0"), tool) is not first
    ours.configure(parse('[plugins."acme/p"]\ntimeouts = { call = 1.5 }'))
    changed = ours.for_export(spec, tool)
    assert isinstance(changed, ExportBinding)
    assert changed.policy.timeout_ms == 1500


def test_settings_that_have_just_changed_are_read_again_each_time(tmp_path: Path) -> None:
    """Two changes within one tick of the kernel's clock have the same change time."""
    now = 1_000_000_000_000
    assert not settings.is_settled(((1, 2, 3, now - 1_000_000),), now)
    assert settings.is_settled((None, (1, 2, 3, now - 100_000_000)), now)


def test_a_link_in_the_place_of_a_folder_for_state_keeps_the_plugin_from_starting(tmp_path: Path) -> None:
    """A plugin rules in its folder for state, and its manifest says what the host makes there."""
    spec = inspect(write_kaged_plugin(tmp_path)).spec
    assert spec is not None
    spec = replace(spec, sandbox=SandboxRequest(write=("${state_dir}/way/inner",)))
    (tmp_path / "victim" / "inner").mkdir(parents=True)
    bound = bindings(state=tmp_path / "state")
    assert bound.bind(spec).refusal is None
    own = tmp_path / "state" / "plugins" / spec.id
    assert (own / "way" / "inner").is_dir()
    (own / "way" / "inner").rmdir()
    (own / "way").rmdir()
    (own / "way").symlink_to(tmp_path / "victim")
    refusal = bound.bind(spec).refusal
    assert refusal is not None and "way cannot be created" in refusal.message
    assert os.stat(tmp_path / "victim" / "inner").st_uid == os.geteuid()


def test_what_the_host_keeps_is_hidden_from_every_plugin(tmp_path: Path) -> None:
    spec = inspect(write_kaged_plugin(tmp_path)).spec
    assert spec is not None
    policy = bindings(f'[host]\nlog_dir = "{tmp_path}/logs"\n', tmp_path / "state").confinement(spec).policy
    assert policy is not None and {f"{tmp_path}/state", f"{tmp_path}/logs"} <= set(policy.hidden)


OPEN_FILES = """
import resource
def tool(name, params, m):
    reply(m, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize("unconfined", [True, False])
def test_a_plugin_may_open_as_many_files_as_the_operator_says_confined_or_not(tmp_path: Path, unconfined: bool) -> None:
    root = write_kaged_plugin(tmp_path / "plugins", body=OPEN_FILES)
    config = tmp_path / "plugbay.toml"

    async def main() -> None:
        for text, wanted in (("", 4096), ("[plugins.p]\nlimits = { open_files = 5000 }", 5000)):
            config.write_text(text)
            async with Host.load(root, config=config, grant_all=True, unconfined=unconfined) as host:
                assert await host.call("echo", {}) == min(wanted, most_open_files() or wanted)

    run_on("asyncio")(main)
