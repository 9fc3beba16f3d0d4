"""What is hidden within folders that a plugin is shown: real sandboxes, as root and as somebody else."""

from __future__ import annotations

import pytest

from tests.process.sandbox.drivers import IDENTITIES, report

BOTH = pytest.mark.parametrize("identity", list(IDENTITIES))
HOW = pytest.mark.parametrize("how", ["read", "write", "package"])

SEEN = ["plugins/mine/program", "plain/note", "data: other:"]
"""What is left of the folder when the rest is hidden."""

REFUSED = ["file", "in a folder", "folder", "program", "turned link"]


@BOTH
@HOW
def test_what_is_hidden_is_empty_or_unreadable_within_whatever_is_shown(identity: str, how: str) -> None:
    assert report(identity, "covers")[f"hidden {how}"].splitlines() == SEEN


@BOTH
@HOW
def test_the_same_folder_without_covers_shows_all_of_it(identity: str, how: str) -> None:
    seen = report(identity, "covers")[f"open {how}"].splitlines()
    assert seen[:4] == ["plugbay.toml", "data/token", "deep/inner/data/token", "#!/bin/sh"]
    assert seen[-1] == "data: token other: bin"


@BOTH
def test_a_plugin_that_writes_around_it_neither_changes_nor_moves_it(identity: str) -> None:
    left = report(identity, "covers")["hidden left"]
    assert left == {
        "data/token": "data/token",
        "deep/inner/data/token": "deep/inner/data/token",
        "plain/new": "written",
        "plain/note": "plain/note",
        "plugbay.toml": "plugbay.toml",
        "plugins/mine/program": "plugins/mine/program",
        "plugins/other/bin/program": "#!/bin/sh",
    }


@BOTH
def test_the_same_attacks_without_covers_succeed(identity: str) -> None:
    left = report(identity, "covers")["open left"]
    assert left["plugbay.toml"] == "evil"
    assert left["moved/inner/data/token"] == "deep/inner/data/token"
    assert "plugins/other/bin/program" not in left


@BOTH
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_hidden_is_never_shown_itself(identity: str, case: str) -> None:
    failure = report(identity, "covers")[f"hidden {case}"]
    assert failure["kind"] == "SandboxUnavailable"
    words = "a link by which the host finds" if case == "turned link" else "the host's own or another plugin's"
    assert words in failure["message"] and failure["hint"]


@BOTH
@pytest.mark.parametrize("case", [f"open {case}" for case in REFUSED] + ["hidden turned link, read"])
def test_what_is_not_hidden_is_shown(identity: str, case: str) -> None:
    assert report(identity, "covers")[case] == {"kind": "started"}


@BOTH
def test_everything_that_is_visible_is_announced_and_nothing_else(identity: str) -> None:
    said = report(identity, "covers")
    announced = {path: how for how, path in said["announced"]}
    mounts = {path for path in said["mounts"] if path != "/" and not path.startswith(("/proc", "/dev"))}
    bound = {path for path, how in announced.items() if how in ("read-only", "writable", "empty", "unreadable")}
    assert mounts - {"/tmp"} == {path for path in bound if not path.startswith("/proc")}
    assert {"/tmp", "/proc", "/dev"} <= set(announced)
    assert [how for path, how in announced.items() if path.endswith("/data")] == ["empty", "empty"]
    assert [how for path, how in announced.items() if path.endswith("plugbay.toml")] == ["unreadable"]
