"""Every field of an ainb manifest has its type and its default."""

from __future__ import annotations

import pytest

from plugbay.contracts.ainb.sections import Lifecycle, Manifest, Provides, Subscribes
from tests.contracts.ainb.manifests import good, manifest, problems
from tests.support.requirements import requirement


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
