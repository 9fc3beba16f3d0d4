"""What granted access covers, row by row."""

from __future__ import annotations

import pytest

from plugbay.host.authorization.gates import closing, covers_topic, may_spawn, read_roots, refused
from plugbay.model.errors import Code, Origin
from plugbay.model.spec import Access
from tests.support.requirements import requirement


@requirement("ainb:host-topics-gated")
def test_a_topic_is_covered_by_any_of_its_grants() -> None:
    access = [Access("topic", "a"), Access("topic", "b.*")]
    assert [covers_topic(access, topic) for topic in ("a", "b.c", "b", "fleet.x")] == [True, True, False, False]
    assert not covers_topic([], "a")


def test_other_access_covers_no_topic() -> None:
    assert not covers_topic([Access("network"), Access("run"), Access("read_path", "x")], "x")


def test_roots_are_the_paths_that_may_be_read() -> None:
    access = [Access("read_path", "~/a"), Access("write_path", "~/b"), Access("read_path", "/c"), Access("topic", "/d")]
    assert read_roots(access) == ["~/a", "/c"]


@pytest.mark.parametrize(
    ("access", "may"),
    [([], False), ([Access("network")], False), ([Access("run")], True), ([Access("run", "git")], True)],
)
def test_processes_are_started_for_who_may_have_them_started(access: list[Access], may: bool) -> None:
    assert may_spawn(access) is may


@requirement("ainb:host-files-denied")
@pytest.mark.parametrize(
    ("path", "capability"),
    [
        ("/home/u/.claude/projects/x/y.jsonl", "read_claude_logs"),
        ("/home/u/.claude/projects", "read_claude_logs"),
        ("/home/u/.claude/projectsx", "read_paths"),
        ("/home/u/.claude/projects/../../secret", "read_paths"),
        ("/notes/a", "read_paths"),
        ("/etc/passwd", "read_paths"),
    ],
)
def test_a_path_that_is_closed_names_what_would_open_it(path: str, capability: str) -> None:
    requested = [
        Access("write_path", "/etc", capability="write_plugin_data"),
        Access("read_path", "~/.claude/projects", capability="read_claude_logs"),
        Access("read_path", "/notes", capability="read_paths=/notes"),
    ]
    assert closing(requested, path, "/home/u") == capability


def test_a_refusal_is_a_matter_of_policy_and_names_its_capability() -> None:
    failure = refused("event_bus", "no")
    assert (failure.code, failure.origin, failure.message) == (Code.CAPABILITY_NOT_ALLOWED, Origin.POLICY, "no")
    assert failure.detail == {"capability": "event_bus"}
