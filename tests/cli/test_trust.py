"""`plugbay trust`: whose keys count. The real command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.requirements import requirement


@pytest.fixture
def key_id(run: Run, cwd: Path) -> str:
    return str(run("keygen", "acme", "--json").json["key_id"])


@requirement("vai:package-publisher-bound")
def test_a_key_is_trusted_with_its_publishers_plugins_until_a_day(run: Run, key_id: str) -> None:
    done = run("trust", "add", "acme.pub", "--publisher", "acme", "--package", "notes", "--until", "2099-12-31")
    assert (done.code, f"{key_id} signs for acme and notes, until 2099-12-31" in done.out) == (0, True)
    listed = run("trust", "list", "--json").json
    assert [(key["key_id"], key["publisher"], key["packages"]) for key in listed] == [(key_id, "acme", ["notes"])]


@requirement("vai:package-key-revocation")
def test_a_revoked_key_is_shown_as_such_and_stays_so(run: Run, key_id: str) -> None:
    run("trust", "add", "acme.pub", "--publisher", "acme")
    assert "revoked" in run("trust", "revoke", key_id).out
    assert run("trust", "list", "--json").json[0]["revoked"] is True
    again = run("trust", "add", "acme.pub", "--publisher", "acme", "--json")
    assert (again.code, again.json["refused"]["reason"]) == (6, "key_revoked")


def test_an_expired_key_is_shown_as_such(run: Run, key_id: str) -> None:
    run("trust", "add", "acme.pub", "--publisher", "acme", "--until", "2020-01-01")
    assert "expired" in run("trust", "list").out


def test_mistakes_are_told(run: Run, key_id: str, cwd: Path) -> None:
    assert run("trust", "add", "acme.pub", "--publisher", "acme", "--until", "soon").code == 2
    assert run("trust", "add", "acme.key", "--publisher", "acme").code == 6
    assert run("trust", "add", "acme.pub", "--publisher", "").code == 2
    assert run("trust", "revoke", "0" * 16).code == 4
    assert "no key is trusted yet" in run("trust", "list").err
    (cwd / "t.json").write_text("{")
    done = run("trust", "list", "--trust", "t.json", "--json")
    assert (done.code, done.json["refused"]["reason"]) == (3, "invalid_config")
