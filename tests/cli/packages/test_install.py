"""The store of installed plugins, from a package to a plugin that answers. The real command line."""

from __future__ import annotations

import contextlib
import os
import pty
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plugbay.packages.installer import Installer
from plugbay.packages.store import Store
from plugbay.packages.trust import TrustStore
from tests.cli.conftest import Run, command, environment
from tests.packages.builders import NOW, key, pack, sign, tarball, trust
from tests.support.commands import Command
from tests.support.patience import PATIENCE, until_blocking
from tests.support.requirements import requirement


@pytest.fixture
def releases(cwd: Path, tmp_path: Path) -> dict[str, str]:
    """Packages by version, signed with a key that is trusted; 2.0.0 asks for more."""
    acme = key()
    trust(tmp_path / ".config" / "plugbay" / "trust.json", (acme, "acme"))
    wants = {"1.0.0": ["files"], "1.1.0": ["files"], "2.0.0": ["files", "mail"]}
    return {version: str(sign(pack(cwd, version, capabilities=wants[version]), acme)) for version in wants}


def call(run: Run, store: str = "store") -> Any:
    return run("call", "acme.notes", "t", "--plugins", f"{store}/plugins", "--grant-all").json


@requirement("vai:package-trusted-signature")
def test_a_package_is_installed_and_answers(run: Run, releases: dict[str, str]) -> None:
    done = run("install", releases["1.0.0"], "--store", "store")
    assert done.code == 0
    for words in ("acme.notes 1.0.0", "store/plugins/acme.notes", "signature key", "files"):
        assert words in done.out
    assert call(run) == {"version": "1.0.0"}
    again = run("install", releases["1.0.0"], "--store", "store", "--json")
    assert (again.code, again.json["changed"]) == (0, False)


def test_the_store_is_in_the_data_folder_unless_one_is_named(
    run: Run, releases: dict[str, str], tmp_path: Path
) -> None:
    shown = run("install", releases["1.0.0"], "--json").json
    assert shown["folder"] == str(tmp_path / ".local/share/plugbay/plugins/acme.notes")


def test_what_is_installed_is_known_by_its_id(run: Run, releases: dict[str, str]) -> None:
    assert run("call", "acme.notes", "t").code == 4
    run("install", releases["1.0.0"])
    assert run("call", "acme.notes", "t", "--grant-all").json == {"version": "1.0.0"}
    assert "→ t " in run("tap", "acme.notes", "--call", "t", "--grant-all").out
    assert run("inspect", "acme.notes", "--json").json["id"] == "acme.notes"
    assert "error: acme.notes has no screen" in run("render", "acme.notes").err
    assert run("call", "acme.note", "t").code == 4


def test_another_version_is_an_upgrade(run: Run, releases: dict[str, str]) -> None:
    first = run("upgrade", releases["1.0.0"], "--store", "store")
    assert (first.code, "plugbay install" in first.err) == (4, True)
    run("install", releases["1.0.0"], "--store", "store")
    done = run("install", releases["1.1.0"], "--store", "store")
    assert (done.code, "plugbay upgrade" in done.err) == (5, True)
    assert run("upgrade", releases["1.1.0"], "--store", "store").code == 0
    assert call(run) == {"version": "1.1.0"}


@requirement("vai:package-permissions-shown")
def test_an_upgrade_that_requests_more_needs_consent(run: Run, releases: dict[str, str]) -> None:
    run("install", releases["1.0.0"], "--store", "store")
    done = run("upgrade", releases["2.0.0"], "--store", "store")
    assert (done.code, "+ requests mail" in done.err, "--yes" in done.err) == (5, True, True)
    assert call(run) == {"version": "1.0.0"}
    refused = run("upgrade", releases["2.0.0"], "--store", "store", "--json")
    assert refused.json["refused"]["difference"]["asked"] == ["mail"]
    agreed = run("upgrade", releases["2.0.0"], "--store", "store", "--yes", "--json")
    assert (agreed.code, agreed.json["difference"]["asked"]) == (0, ["mail"])
    assert call(run) == {"version": "2.0.0"}


CTRL_C, CTRL_D = "\x03", "\x04"


def _left(process: Command, type_: Callable[[], object], *, again: bool) -> int:
    """The status of a process after something was typed.

    `again`: it is typed again when nothing happens. Python forgets an interrupt that comes while a `__del__` runs.
    """
    for _ in range(3 if again else 1):
        type_()
        with contextlib.suppress(AssertionError):
            until_blocking(lambda: process.poll() is not None, PATIENCE / 3)
            return process.wait(PATIENCE)
    process.kill()
    raise AssertionError("it did not leave")


@requirement("vai:package-permissions-shown")
@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 5), ("\n", 5), (CTRL_D, 5), (CTRL_C, 130)])
def test_a_person_at_a_terminal_is_asked(
    run: Run, releases: dict[str, str], cwd: Path, tmp_path: Path, typed: str, code: int
) -> None:
    run("install", releases["1.0.0"], "--store", "store")
    ours, theirs = pty.openpty()
    words = ["upgrade", releases["2.0.0"], "--store", "store"]
    with open(os.devnull, "wb") as nothing:
        streams = (theirs, nothing.fileno(), theirs)
        process = Command(words, streams, cwd, environment(tmp_path, NO_COLOR="1"), controlled=True)
    os.close(theirs)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(ours, 4096)
    assert _left(process, lambda: os.write(ours, typed.encode()), again=typed == CTRL_C) == code
    os.close(ours)
    assert b"requests mail" in shown
    assert call(run) == {"version": "1.0.0" if code else "2.0.0"}
    assert os.listdir(cwd / "store" / "tmp") == []


def test_there_is_no_prompt_without_standard_input(run: Run, releases: dict[str, str], cwd: Path) -> None:
    run("install", releases["1.0.0"], "--store", "store")
    line = shlex.join(command("upgrade", releases["2.0.0"], "--store", "store"))
    done = subprocess.run(["sh", "-c", f"{line} <&-"], cwd=cwd, env=environment(cwd.parent), capture_output=True)
    assert (done.returncode, b"--yes" in done.stderr) == (5, True)


@requirement("vai:package-replay")
def test_a_downgrade_is_denied_unless_it_is_allowed(run: Run, releases: dict[str, str]) -> None:
    run("install", releases["1.1.0"], "--store", "store")
    done = run("upgrade", releases["1.0.0"], "--store", "store", "--json")
    assert (done.code, done.json["refused"]["reason"]) == (5, "downgrade")
    assert run("upgrade", releases["1.0.0"], "--store", "store", "--allow-downgrade").code == 0
    assert call(run) == {"version": "1.0.0"}


@requirement("vai:package-trusted-signature")
def test_an_unsigned_package_is_refused_unless_it_is_allowed(run: Run, cwd: Path) -> None:
    package = str(pack(cwd))
    done = run("install", package, "--store", "store")
    assert (done.code, "has no signature" in done.err) == (6, True)
    assert "signature none" in run("install", package, "--store", "store", "--allow-unsigned").out


def test_a_folder_or_a_missing_file_is_reported(run: Run, cwd: Path) -> None:
    assert "plugbay pack" in run("install", ".", "--store", "store").err
    done = run("install", "gone.tgz", "--store", "store")
    assert (done.code, "oci://" in done.err) == (4, True)


def test_a_package_with_a_manifest_of_no_use_is_reported_by_its_own_name(run: Run, cwd: Path) -> None:
    (cwd / "x.tgz").write_bytes(tarball(("rterm-plugin.json", b"{}")))
    done = run("install", "x.tgz", "--store", "store")
    assert (done.code, "x.tgz cannot be used" in done.err, "/tmp/" in done.err) == (3, True, False)
    shown = run("install", "x.tgz", "--store", "store", "--json")
    assert (shown.code, shown.json["refused"]["reason"]) == (3, "invalid_manifest")


STORE = ("--store", "store")


@pytest.fixture
def upgraded(cwd: Path) -> None:
    """1.0.0, then 2.0.0."""
    installer = Installer(Store(cwd / "store"), TrustStore(cwd / "trust.json"), lambda: NOW)
    for version in ("1.0.0", "2.0.0"):
        with installer.candidate(pack(cwd, version), allow_unsigned=True) as candidate:
            installer.install(candidate)


def test_the_list_shows_current_and_earlier_releases(run: Run, upgraded: None, cwd: Path) -> None:
    out = run("list", *STORE).out
    assert out.startswith("acme.notes 2.0.0  rune · unsigned · sha256:")
    assert "earlier   1.0.0" in out
    shown = run("list", *STORE, "--json").json
    assert shown["folder"] == str(cwd / "store" / "plugins")
    assert [(p["id"], p["version"], [e["version"] for e in p["earlier"]]) for p in shown["plugins"]] == [
        ("acme.notes", "2.0.0", ["1.0.0"])
    ]


def test_an_empty_store_says_so(run: Run) -> None:
    done = run("list", *STORE)
    assert (done.code, "no plugin is installed" in done.err) == (0, True)


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


def test_what_is_uninstalled_is_gone_and_unknown_ids_are_reported(run: Run, upgraded: None, cwd: Path) -> None:
    unknown = run("uninstall", "acme.note", *STORE)
    assert (unknown.code, "installed is acme.notes" in unknown.err) == (4, True)
    assert run("uninstall", "acme.notes", *STORE, "--json").json["id"] == "acme.notes"
    assert list((cwd / "store" / "plugins").iterdir()) == []
    assert run("uninstall", "acme.notes", *STORE).code == 4


def test_the_shell_completes_the_ids_of_installed_plugins(run: Run, releases: dict[str, str]) -> None:
    run("install", releases["1.0.0"], "--store", "store")
    words = ["plugbay", "pin", "--store", "store", "ac"]
    bash = {"_PLUGBAY_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": "4"}
    assert run(**bash).out.split() == ["acme.notes"]
    assert run(**bash | {"COMP_WORDS": "\n".join([*words[:4], "x"])}).out.split() == []
