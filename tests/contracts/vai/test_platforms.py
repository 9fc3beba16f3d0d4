"""Machines have Go's names; a package for other machines is kept, and not started."""

from __future__ import annotations

import pytest

from plugbay.contracts.vai.platforms import PROCESSORS, SYSTEMS, mismatch, named
from tests.contracts.vai.manifests import MemorySite, manifest, parsed, problems, reported
from tests.support.requirements import requirement


@requirement("vai:manifest-platform")
@pytest.mark.parametrize(
    ("system", "processor", "go"),
    [
        ("linux", "x86_64", ("linux", "amd64")),
        ("linux", "aarch64", ("linux", "arm64")),
        ("darwin", "arm64", ("darwin", "arm64")),
        ("win32", "AMD64", ("windows", "amd64")),
        ("freebsd13", "i686", ("freebsd", "386")),
        ("linux", "armv7l", ("linux", "arm")),
        ("linux", "riscv64", ("linux", "riscv64")),
    ],
)
def test_a_machine_has_the_names_that_go_has_for_it(system: str, processor: str, go: tuple[str, str]) -> None:
    assert named(system, processor) == go
    assert go[0] in SYSTEMS
    assert go[1] in PROCESSORS


@requirement("vai:manifest-platform")
@pytest.mark.parametrize(
    ("here", "paths"),
    [
        (("linux", "amd64"), []),
        (("darwin", "amd64"), ["runtime.os"]),
        (("linux", "arm64"), ["runtime.arch"]),
        (("darwin", "arm64"), ["runtime.os", "runtime.arch"]),
    ],
)
def test_a_package_for_other_machines_is_listed_with_a_warning_and_not_started(
    here: tuple[str, str], paths: list[str]
) -> None:
    spec, found = parsed(manifest(), MemorySite(platform=here))
    assert [(item.severity, item.code, item.path) for item in found] == [
        ("warning", "unsupported_platform", path) for path in paths
    ]
    assert spec is not None
    refusal = spec.exports[0].facts["unsupported"]
    assert bool(refusal) == bool(paths)
    if paths:
        assert refusal == f"it is for linux on amd64, and this machine is {here[0]} on {here[1]}"


def test_a_machine_must_be_in_both_lists() -> None:
    assert mismatch(["linux", "darwin"], ["amd64", "arm64"], ("darwin", "arm64")) == ""
    assert mismatch(["linux", "darwin"], ["amd64"], ("darwin", "arm64")).startswith("it is for linux/darwin on amd64")


@pytest.mark.parametrize("key", ["os", "arch"])
def test_a_package_that_runs_on_nothing_is_refused(key: str) -> None:
    assert problems(manifest(runtime={key: "[]"})) == [("error", "invalid_value", f"runtime.{key}")]


@pytest.mark.parametrize(
    ("key", "names", "hint"),
    [
        ("os", '["linux", "macos"]', "'darwin'"),
        ("arch", '["amd64", "x86_64"]', "'amd64'"),
        ("os", '["linux", "linx"]', "'linux'"),
    ],
)
def test_a_name_that_go_does_not_have_is_warned_about(key: str, names: str, hint: str) -> None:
    (found,) = reported(manifest(runtime={key: names}))
    assert (found.severity, found.code, found.path) == ("warning", "unknown_platform", f"runtime.{key}[1]")
    assert f"did you mean {hint}" in found.message
