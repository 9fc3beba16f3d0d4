"""Dry runs of commands that change a binding, against a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.cli.gateway.dry_run import find_changes
from tests.cli.gateway.test_commands import Shell, shell, world
from tests.support.requirements import requirement
from tests.support.worlds import World

__all__ = ["shell", "world"]


@pytest.fixture
def bound(shell: Shell, world: World) -> str:
    """The id of an active binding."""
    return world.ids["binding_id"]


@requirement("host:control-plane-commands")
def test_an_update_is_shown_as_a_diff_and_not_made(shell: Shell, bound: str) -> None:
    before = shell(f"binding show {bound} --json").json
    done = shell(f"binding update {bound} --policy timeout_ms=5000 --dry-run")
    assert done.code == 0, done.err
    assert "--- as it is" in done.out and "+++ as it would be" in done.out
    assert '+    "timeout_ms": 5000' in done.out
    assert "nothing was changed" in done.err
    told = shell(f"binding update {bound} --policy timeout_ms=5000 --dry-run --json").json
    assert told["changes"] == [{"path": "policy.timeout_ms", "after": 5000}]
    assert (told["before"]["policy"], told["after"]["policy"]) == ({}, {"timeout_ms": 5000})
    assert told["validation"]["effective_permissions"]["limits"]
    assert shell(f"binding show {bound} --json").json == before


@requirement("host:control-plane-commands")
@pytest.mark.parametrize(
    ("words", "caller"),
    [
        ("update {} --config cups=2", "admin"),
        ("update {} --package-version 9.9.9", "admin"),
        ("update {} --status disabled", "stranger"),
        ("update {} --status disabled", "viewer"),
        ("update nowhere --status disabled", "admin"),
        ("delete nowhere", "admin"),
        ("create --package acme/none --package-version 1.0.0 --export t --org org_1", "admin"),
    ],
)
def test_a_dry_run_that_would_be_refused_has_the_exit_status_of_the_real_command(
    words: str, caller: str, shell: Shell, bound: str
) -> None:
    line = f"binding {words.format(bound)}"
    dry, real = shell(f"{line} --dry-run", caller=caller), shell(line, caller=caller)
    assert dry.code == real.code != 0, dry.err
    assert "error:" in dry.err


@requirement("host:control-plane-commands")
def test_creation_and_deletion_are_shown_whole_and_not_made(shell: Shell, bound: str) -> None:
    row = shell(f"binding show {bound} --json").json
    words = f"--package {row['package_id']} --package-version {row['package_version']} --export {row['export_id']}"
    ids = [item["binding_id"] for item in shell("binding list --json").json["items"]]
    draft = shell(f"binding create {words} --org org_1 --project proj_3 --status draft --dry-run")
    assert draft.code == 0 and '+  "status": "draft"' in draft.out, draft.err
    deleted = shell(f"binding delete {bound} --dry-run --json")
    if deleted.code == 0:
        assert deleted.json["after"] is None and deleted.json["changes"][0]["before"] == deleted.json["before"]
    assert [item["binding_id"] for item in shell("binding list --json").json["items"]] == ids


@requirement("host:control-plane-commands")
def test_a_change_to_the_same_is_no_change(shell: Shell, bound: str, cwd: Path) -> None:
    status = shell(f"binding show {bound} --json").json["status"]
    same = shell(f"binding update {bound} --status {status} --dry-run")
    assert (same.code, same.out) == (0, "") and "nothing would change" in same.err


def test_changes_have_paths_and_only_the_sides_that_exist() -> None:
    before = {"config": {"a": 1, "b": [1]}, "status": "draft"}
    after = {"config": {"b": [1, 2], "c": None}, "status": "draft"}
    assert list(find_changes(before, after)) == [
        {"path": "config.a", "before": 1},
        {"path": "config.b", "before": [1], "after": [1, 2]},
        {"path": "config.c", "after": None},
    ]
    assert list(find_changes(None, after)) == [{"path": "", "after": after}]
