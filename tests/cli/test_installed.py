"""`plugbay list`, `rollback`, `pin`, `unpin`, `uninstall`: the real command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.packages.installer import Installer
from plugbay.packages.store import Store
from plugbay.packages.trust import TrustStore
from tests.cli.conftest import Run
from tests.packages.builders import NOW, pack

STORE = ("--store", "store")


@pytest.fixture
def upgraded(cwd: Path) -> None:
    """1.0.0, then 2.0.0."""
    installer = Installer(Store(cwd / "store"), TrustStore(cwd / "trust.json"), lambda: NOW)
    for version in ("1.0.0", "2.0.0"):
        with installer.candidate(pack(cwd, version), allow_unsigned=True) as candidate:
            installer.install(candidate)


def test_the_list_shows_what_is_current_and_what_was_before(run: Run, upgraded: None, cwd: Path) -> None:
    out = run("list", *STORE).out
    assert out.startswith("acme.notes 2.0.0  rune · unsigned · sha256:")
    assert "before    1.0.0" in out
    shown = run("list", *STORE, "--json").json
    assert shown["folder"] == str(cwd / "store" / "plugins")
    assert [(p["id"], p["version"], [e["version"] for e in p["earlier"]]) for p in shown["plugins"]] == [
        ("acme.notes", "2.0.0", ["1.0.0"])
    ]


def test_an_empty_store_says_so(run: Run) -> None:
    done = run("list", *STORE)
    assert (done.code, "nothing is installed" in done.err) == (0, True)


def test_rollback_goes_back_and_says_when_there_is_nothing_left(run: Run, upgraded: None) -> None:
    assert run("rollback", "acme.notes", *STORE).out == "acme.notes 1.0.0 is current again\n"
    assert run("call", "acme.notes", "t", "--plugins", "store/plugins").json == {"version": "1.0.0"}
    done = run("rollback", "acme.notes", *STORE, "--json")
    assert (done.code, done.json["refused"]["reason"]) == (4, "no_earlier_release")


def test_a_pin_denies_every_move(run: Run, upgraded: None) -> None:
    assert run("pin", "acme.notes", *STORE).code == 0
    assert "pinned" in run("list", *STORE).out
    done = run("rollback", "acme.notes", *STORE)
    assert (done.code, "plugbay unpin acme.notes" in done.err) == (5, True)
    assert run("unpin", "acme.notes", *STORE).code == 0
    assert run("rollback", "acme.notes", *STORE).code == 0


def test_what_is_uninstalled_is_gone_and_unknown_ids_are_told(run: Run, upgraded: None, cwd: Path) -> None:
    unknown = run("uninstall", "acme.note", *STORE)
    assert (unknown.code, "installed is acme.notes" in unknown.err) == (4, True)
    assert run("uninstall", "acme.notes", *STORE, "--json").json["id"] == "acme.notes"
    assert list((cwd / "store" / "plugins").iterdir()) == []
    assert run("uninstall", "acme.notes", *STORE).code == 4
