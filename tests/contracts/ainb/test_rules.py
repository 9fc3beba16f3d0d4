"""What the shape of an ainb manifest cannot say: names, versions, topics, and keys that mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.ainb.manifests import good, manifest, problems, reported
from tests.support.requirements import requirement


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
    assert f"ABI {abi} and this host ABI 2" in found.message
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
