"""What doctor asks this machine, and how the answers change with it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from plugbay.process.sandbox import facts, seccomp
from plugbay.process.sandbox.cgroup import Cgroups
from plugbay.process.sandbox.facts import Fact, preflight
from plugbay.process.sandbox.launcher import Sandbox, SandboxSettings
from tests.support.machine import needs_root

T = TypeVar("T")


def asked(sandbox: Sandbox) -> dict[str, Fact]:
    with ThreadPoolExecutor(1) as pool, closing(sandbox):
        found = pool.submit(preflight, sandbox).result()
    assert all(fact.fix for fact in found if not fact.ok), found
    return {fact.name: fact for fact in found}


def test_on_a_machine_that_confines_everything_is_well_and_proved() -> None:
    found = asked(Sandbox())
    assert all(fact.ok for fact in found.values() if fact.vital), found
    assert found["confinement"].text == "a probe inside has no rights, a filter, and sees 2 processes"


def test_without_bubblewrap_there_is_no_proof(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = asked(Sandbox())
    assert not found["bubblewrap"].ok
    assert "confinement" not in found


def test_a_bubblewrap_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho --disable-userns\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert "lacks --bind-fd" in asked(Sandbox())["bubblewrap"].text


@needs_root
def test_a_range_of_users_that_is_not_here_is_an_error() -> None:
    assert not asked(Sandbox(SandboxSettings(uids=(2**32 - 2, 2**32 - 1))))["user"].ok


def test_a_filter_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = seccomp.program
    monkeypatch.setattr(seccomp, "program", lambda network: real(network=network, folder=tmp_path))
    assert not asked(Sandbox())["system call filter"].ok


def test_limits_that_are_degraded_are_an_error_only_where_they_are_required(tmp_path: Path) -> None:
    for required in (False, True):
        found = asked(Sandbox(SandboxSettings(require_limits=required), Cgroups(tmp_path / "none")))
        assert (found["limits"].ok, found["limits"].vital) == (False, required)
        assert ("confinement" in found) is not required


@pytest.mark.parametrize(
    ("name", "value", "ok", "vital"),
    [
        ("user/max_user_namespaces", "0", False, True),
        ("kernel/unprivileged_userns_clone", "0", False, True),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", False, False),
        ("user/max_user_namespaces", "1000", True, True),
    ],
)
def test_switches_that_forbid_user_namespaces_are_named(
    tmp_path: Path, name: str, value: str, ok: bool, vital: bool
) -> None:
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text(f"{value}\n")
    fact = facts._namespaces(tmp_path)
    assert (fact.ok, fact.vital) == (ok, vital)
    assert ok or name.replace("/", ".") in fact.text


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Seccomp: 0", "Seccomp"),
        ("core_pattern: open", "core_pattern can be written"),
        ("root: open", "root can be written"),
        ("CapBnd: 000001ffffffffff", "CapBnd"),
    ],
)
def test_a_probe_that_can_do_more_than_it_should_is_an_error(
    monkeypatch: pytest.MonkeyPatch, said: str, words: str
) -> None:
    good = f"Seccomp:\t2\nNoNewPrivs:\t1\nCapEff:\t{'0' * 16}\nCapBnd:\t{'0' * 16}\nprocesses: 2\n"
    saying: list[Callable[[Sandbox], str]] = [lambda _: good, lambda _: good + said + "\n"]
    found = []
    for answer in saying:
        monkeypatch.setattr(facts, "_from_inside", answer)
        found.append(asked(Sandbox())["confinement"])
    assert [fact.ok for fact in found] == [True, False]
    assert words in found[1].text
