"""Old records of a running server, removed from a terminal."""

from __future__ import annotations

from pathlib import Path

from plugbay.cli.prune import _age
from tests.cli.conftest import Run
from tests.server.test_server import served
from tests.support.plugins import write_plugin


def test_what_is_too_old_is_shown_and_removed_as_plugbay_toml_has_it(run: Run, cwd: Path) -> None:
    write_plugin(cwd / "plugins", "p")
    (cwd / "plugbay.toml").write_text('[retention]\ncalls = "12 hours"\naudit = "400 days"\n')
    with served(cwd, "plugins") as server:
        there = ("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        planned = run("prune", "--dry-run", *there)
        assert planned.code == 0 and planned.err == ""
        assert [line.split() for line in planned.out.splitlines()[:3]] == [
            ["RECORDS", "KEPT", "TOO", "OLD"],
            ["calls", "12", "hours", "0"],
            ["deliveries", "90", "days", "0"],
        ]
        done = run("prune", *there)
        assert done.code == 0 and done.out.splitlines()[0].split()[-1] == "REMOVED"
        told = run("prune", "--json", *there).json
        assert told["dry_run"] is False and told["records"]["audit"] == {"kept": 400 * 24 * 3600.0, "number": 0}
        assert server.end() == 0


def test_a_time_that_is_none_keeps_a_server_from_starting_and_says_why(run: Run, cwd: Path) -> None:
    (cwd / "plugbay.toml").write_text('[retention]\ncalls = "soon"\n')
    done = run("serve", "--listen", "127.0.0.1:0")
    assert done.code == 3 and "retention.calls" in done.err and "90 days" in done.err


def test_without_a_server_it_is_said_how_to_have_one(run: Run) -> None:
    done = run("prune")
    assert done.code == 4 and "plugbay serve" in done.err


def test_a_time_is_shown_as_it_is_written() -> None:
    assert [_age(seconds) for seconds in (None, 0.0, 3600.0, 7200.0, 86400.0, 2592000.0)] == [
        "forever",
        "until they expire",
        "1 hour",
        "2 hours",
        "1 day",
        "30 days",
    ]
