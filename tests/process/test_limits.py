"""Limits set from outside on a running process."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugbay.process import limits
from plugbay.process.limits import CPU_GRACE_SECONDS, Rlimits
from tests.support.patience import PATIENCE


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        yield cat
        cat.kill()


def test_the_defaults_forbid_core_dumps_and_bound_files(process: subprocess.Popen[bytes]) -> None:
    limits.apply(process.pid, Rlimits())
    assert resource.prlimit(process.pid, resource.RLIMIT_CORE) == (0, 0)
    assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (4096, 4096)
    assert resource.prlimit(process.pid, resource.RLIMIT_FSIZE) == (256 << 20, 256 << 20)


def test_none_leaves_a_limit_as_it_was(process: subprocess.Popen[bytes]) -> None:
    before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    limits.apply(process.pid, Rlimits(core=None, open_files=None, file_size=None))
    assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == before
    assert resource.prlimit(process.pid, resource.RLIMIT_AS) == resource.getrlimit(resource.RLIMIT_AS)


def test_processes_cpu_address_space_and_data_are_set_when_asked_for(process: subprocess.Popen[bytes]) -> None:
    limits.apply(process.pid, Rlimits(processes=100, cpu_seconds=7, address_space=1 << 30, data=1 << 29))
    assert resource.prlimit(process.pid, resource.RLIMIT_NPROC) == (100, 100)
    assert resource.prlimit(process.pid, resource.RLIMIT_DATA) == (1 << 29, 1 << 29)
    assert resource.prlimit(process.pid, resource.RLIMIT_AS) == (1 << 30, 1 << 30)


def test_the_cpu_limit_warns_before_it_kills(process: subprocess.Popen[bytes]) -> None:
    limits.apply(process.pid, Rlimits(cpu_seconds=7))
    assert resource.prlimit(process.pid, resource.RLIMIT_CPU) == (7, 7 + CPU_GRACE_SECONDS)


def test_a_limit_above_the_hard_limit_is_clamped_to_it(process: subprocess.Popen[bytes]) -> None:
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (50, 60))
    limits.apply(process.pid, Rlimits(open_files=1000))
    assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (60, 60)


@pytest.mark.parametrize(("hard", "most"), [(60, 60), (resource.RLIM_INFINITY, None)])
def test_no_child_has_more_open_files_than_the_host_may_have(
    monkeypatch: pytest.MonkeyPatch, hard: int, most: int | None
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (50, hard))
    assert limits.most_open_files() == most


def test_a_process_that_is_gone_is_not_an_error() -> None:
    with subprocess.Popen(["/bin/true"]) as process:
        process.wait(PATIENCE)
    limits.apply(process.pid, Rlimits())


def test_a_system_that_cannot_limit_another_process_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(resource, "prlimit")
    limits.apply(1, Rlimits())


def test_a_limit_that_cannot_be_set_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(resource, "prlimit", refuse)
    with pytest.raises(PermissionError):
        limits.apply(1, Rlimits())


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [
        (100, 200, 200),
        (200, 200, 200),
        (100, limits.HOST_OPEN_FILES * 2, limits.HOST_OPEN_FILES),
        (limits.HOST_OPEN_FILES * 2, limits.HOST_OPEN_FILES * 2, None),
        (100, resource.RLIM_INFINITY, limits.HOST_OPEN_FILES),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
    ],
)
def test_a_host_raises_its_own_limit_of_open_files_and_never_lowers_it(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: int | None
) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, both: set_to.append(both))
    limits.raise_open_files()
    assert set_to == ([] if raised in (None, soft) else [(raised, hard)])


@pytest.mark.parametrize(("before", "after"), [(0, limits.OOM_SCORE), (limits.OOM_SCORE + 100, limits.OOM_SCORE + 100)])
def test_the_kernel_is_told_to_kill_a_plugin_first_unless_it_would_anyway(
    process: subprocess.Popen[bytes], before: int, after: int
) -> None:
    path = Path(f"/proc/{process.pid}/oom_score_adj")
    path.write_text(str(before))
    limits.prefer_for_oom(process.pid)
    assert int(path.read_text()) == after
    limits.prefer_for_oom(2**30)
