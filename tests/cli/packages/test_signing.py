"""`plugbay keygen`, `sign`, `verify` and `trust`: the real command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from plugbay.packages import archive, keys
from plugbay.packages.trust import TrustedKey, TrustStore
from tests.cli.conftest import Run, environment
from tests.packages.builders import plugin
from tests.support.requirements import requirement

PACKAGE = "acme.notes-1.0.0.tar.gz"


@pytest.fixture
def packed(cwd: Path, tmp_path: Path) -> Path:
    """A package, and a key of acme that is trusted."""
    public = keys.make(cwd / "acme.key", cwd / "acme.pub")
    TrustStore(tmp_path / ".config" / "plugbay" / "trust.json").add(TrustedKey(public, "acme"))
    return archive.pack(plugin(cwd), cwd).path


@requirement("vai:package-private-keys")
def test_a_key_is_made_once_and_closed(run: Run, cwd: Path) -> None:
    done = run("keygen", "acme", "--json")
    assert (cwd / "acme.key").stat().st_mode & 0o777 == 0o600
    assert (done.code, done.json["public"], len(done.json["key_id"])) == (0, "acme.pub", 16)
    again = run("keygen", "acme")
    assert (again.code, "never overwrites" in again.err) == (6, True)


@requirement("vai:package-signature-file")
def test_an_archive_is_signed_beside_itself_and_verified(run: Run, packed: Path) -> None:
    before = packed.read_bytes()
    assert run("sign", PACKAGE, "--key", "acme.key").code == 0
    assert packed.read_bytes() == before
    done = run("verify", PACKAGE)
    assert (done.code, "is signed by acme" in done.out) == (0, True)
    shown = run("verify", PACKAGE, "--json").json
    assert (shown["status"], shown["publisher"], shown["id"]) == ("verified", "acme", "acme.notes")


@requirement("vai:package-signature-file")
def test_a_folder_is_signed_inside_and_every_file_counts(run: Run, packed: Path, cwd: Path) -> None:
    folder = cwd / "1.0.0" / "acme.notes"
    assert run("sign", folder, "--key", "acme.key").code == 0
    assert json.loads((folder / "marketplace.signature.json").read_bytes())["package_id"] == "acme.notes"
    assert run("verify", folder).code == 0
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "run.pyc").write_bytes(b"planted")
    done = run("verify", folder)
    assert (done.code, "not covered by the signature" in done.err) == (6, True)


def test_a_signature_may_be_written_elsewhere(run: Run, packed: Path, cwd: Path) -> None:
    assert run("sign", PACKAGE, "--key", "acme.key", "--out", "sig.json", "--json").json["file"] == "sig.json"
    assert (cwd / "sig.json").exists()


def test_an_unsigned_or_untrusted_package_has_status_6_and_a_reason(run: Run, packed: Path) -> None:
    unsigned = run("verify", PACKAGE, "--json")
    assert (unsigned.code, unsigned.json["refused"]["reason"]) == (6, "unsigned")
    run("keygen", "other")
    run("sign", PACKAGE, "--key", "other.key")
    unknown = run("verify", PACKAGE, "--json")
    assert (unknown.code, unknown.json["refused"]["reason"]) == (6, "key_unknown")
    assert "plugbay trust add" in run("verify", PACKAGE).err


@requirement("vai:package-private-keys")
def test_a_key_that_others_can_read_is_not_used(run: Run, packed: Path, cwd: Path) -> None:
    (cwd / "acme.key").chmod(0o644)
    done = run("sign", PACKAGE, "--key", "acme.key")
    assert (done.code, "chmod 600 acme.key" in done.err) == (6, True)


def test_a_package_that_is_not_there_is_not_found(run: Run, packed: Path) -> None:
    assert run("verify", "gone.tar.gz").code == 4
    assert run("sign", PACKAGE, "--key", "gone.key").code == 4


@requirement("vai:package-sign-tool")
def test_the_signer_is_also_installed_under_its_contracts_name(run: Run, packed: Path, cwd: Path) -> None:
    command = [str(Path(sys.executable).with_name("vai-plugin-sign")), PACKAGE, "--key", "acme.key"]
    done = subprocess.run(command, cwd=cwd, env=environment(cwd.parent), capture_output=True, text=True, check=False)
    assert (done.returncode, "signed with key" in done.stdout) == (0, True)
    assert run("verify", PACKAGE).code == 0


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


def test_mistakes_are_reported(run: Run, key_id: str, cwd: Path) -> None:
    assert run("trust", "add", "acme.pub", "--publisher", "acme", "--until", "soon").code == 2
    assert run("trust", "add", "acme.key", "--publisher", "acme").code == 6
    assert run("trust", "add", "acme.pub", "--publisher", "").code == 2
    assert run("trust", "revoke", "0" * 16).code == 4
    assert "no key is trusted yet" in run("trust", "list").err
    (cwd / "t.json").write_text("{")
    done = run("trust", "list", "--trust", "t.json", "--json")
    assert (done.code, done.json["refused"]["reason"]) == (3, "invalid_config")


@requirement("vai:package-trust-replace")
def test_another_key_of_a_publisher_needs_the_operators_decision(run: Run, key_id: str) -> None:
    run("trust", "add", "acme.pub", "--publisher", "acme")
    new = run("keygen", "next", "--json").json["key_id"]
    refused = run("trust", "add", "next.pub", "--publisher", "acme")
    assert refused.code == 5 and key_id in refused.err and "--replace" in refused.err
    told = run("trust", "add", "next.pub", "--publisher", "acme", "--json")
    assert told.code == 5 and told.json["refused"]["keys"] == [key_id]
    assert run("trust", "add", "next.pub", "--publisher", "acme", "--replace", "--also").code == 2
    replaced = run("trust", "add", "next.pub", "--publisher", "acme", "--replace")
    assert replaced.code == 0 and f"no longer trusted: {key_id}" in replaced.err
    assert [item["key_id"] for item in run("trust", "list", "--json").json] == [new]
    assert run("trust", "add", "acme.pub", "--publisher", "acme", "--also").code == 0
    assert len(run("trust", "list", "--json").json) == 2
