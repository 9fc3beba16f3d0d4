"""Versions and requirements mean what Cargo says they mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.nexo.versions import MAX_COMPARATORS, Requirement, version_problem
from tests.support.requirements import requirement


@requirement("nexo:manifest-version")
@pytest.mark.parametrize(
    "text", ["0.0.0", "0.2.0", "1.2.3-rc.1", "1.2.3-0a.x-y", "1.2.3+build.007", "1.0.0-a+b", f"{2**64 - 1}.0.0"]
)
def test_a_three_part_version_is_one(text: str) -> None:
    assert version_problem(text) is None


@requirement("nexo:manifest-version")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.2",
        "1.2.3.4",
        "v1.2.3",
        "01.2.3",
        "1.2.03",
        "1.2.3-",
        "1.2.3-01",
        "1.2.3+",
        "1.2.3\n",
        "1.2.x",
        chr(0x661) + ".2.3",
        " 1.2.3",
        "-1.2.3",
        f"{2**64}.0.0",
        "9" * 5000 + ".0.0",
    ],
)
def test_anything_else_is_not(text: str) -> None:
    assert version_problem(text) is not None


@requirement("nexo:manifest-min-version")
@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (">=0.1.0", "0.1.0 0.1.5 0.2.0 9.0.0", "0.0.9"),
        (">0.1.0", "0.1.1 1.0.0", "0.1.0 0.0.9"),
        (">0.1", "0.2.0", "0.1.0 0.1.9"),
        (">1", "2.0.0", "1.9.9"),
        (">=1", "1.0.0 2.0.0", "0.9.9"),
        ("<0.2.0", "0.1.9 0.0.0", "0.2.0"),
        ("<1.2", "1.1.9", "1.2.0"),
        ("<=0.1.5", "0.1.5 0.1.0", "0.1.6"),
        ("<=0.1", "0.1.9", "0.2.0"),
        ("=0.1.5", "0.1.5", "0.1.4 0.1.6"),
        ("=0.1", "0.1.0 0.1.9", "0.2.0 0.0.9"),
        ("=1", "1.9.9", "2.0.0"),
        ("~1.2.3", "1.2.3 1.2.9", "1.2.2 1.3.0"),
        ("~1.2", "1.2.0 1.2.9", "1.3.0"),
        ("~1", "1.0.0 1.9.0", "2.0.0"),
        ("^1.2.3", "1.2.3 1.9.0", "1.2.2 2.0.0"),
        ("^0.1.0", "0.1.0 0.1.9", "0.2.0 0.0.9"),
        ("^0.0.3", "0.0.3", "0.0.2 0.0.4"),
        ("^0.0", "0.0.0 0.0.9", "0.1.0"),
        ("^0", "0.0.0 0.9.9", "1.0.0"),
        ("^1", "1.0.0 1.9.9", "2.0.0"),
        ("0.1.0", "0.1.0 0.1.9", "0.2.0"),
        ("1", "1.5.0", "2.0.0"),
        ("1.*", "1.0.0 1.9.9", "0.9.9 2.0.0"),
        ("0.1.*", "0.1.0 0.1.9", "0.2.0"),
        ("1.X.x", "1.9.9", "2.0.0"),
        (">=1.*", "1.0.0 2.0.0", "0.9.9"),
        ("*", "0.0.0 99.0.0", ""),
        (" x ", "0.0.0", ""),
        (">=0.1.0, <0.3", "0.1.0 0.2.9", "0.0.9 0.3.0"),
        (">= 0.1.0 ,< 0.3.0", "0.2.0", "0.3.0"),
        (">=0.2.0-rc.1", "0.2.0", "0.1.9"),
        (">0.2.0-rc.1", "0.2.0", "0.1.9"),
        ("<=0.2.0-rc.1", "0.1.9", "0.2.0"),
        ("<0.2.0-rc.1", "0.1.9", "0.2.0"),
        ("=0.2.0-rc.1", "", "0.2.0 0.1.9"),
        ("~0.2.0-rc.1", "0.2.0 0.2.1", "0.3.0"),
        ("0.2.0-rc.1", "0.2.0 0.2.1", "0.3.0"),
        (">=0.1.0+build", "0.1.0", "0.0.9"),
    ],
)
def test_a_requirement_admits_what_cargo_admits(text: str, inside: str, outside: str) -> None:
    wanted = Requirement(text)
    assert [version for version in inside.split() if not wanted.admits(version)] == []
    assert [version for version in outside.split() if wanted.admits(version)] == []


@requirement("nexo:manifest-min-version")
def test_the_hosts_own_pre_release_counts_as_its_release() -> None:
    assert Requirement(">=0.2.0").admits("0.2.0-rc.1")
    assert not Requirement(">=0.2.0").admits("0.1.9-rc.1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ">=",
        "abc",
        "1.2.3.4",
        ">=0.1.0,",
        ",1",
        "*, 1",
        "1, *",
        ">=*",
        "1.*.3",
        "01.2",
        "=>1",
        "== 1",
        "1 2",
        "1\n",
        "v1",
        "1.2-rc",
        f">={2**64}",
        "^" + "9" * 5000,
        "1.2.3-01",
        ", ".join(["1"] * (MAX_COMPARATORS + 1)),
    ],
)
def test_text_that_is_no_requirement_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a version requirement|more than 32|after a wildcard"):
        Requirement(text)


def test_as_many_comparators_as_cargo_takes_are_taken() -> None:
    assert Requirement(", ".join(["1"] * MAX_COMPARATORS)).admits("1.0.0")


def test_a_host_without_a_version_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="is not a version"):
        Requirement("*").admits("0.1")


numbers = st.integers(min_value=0, max_value=12)
versions = st.builds("{}.{}.{}".format, numbers, numbers, numbers)


@given(versions)
def test_a_version_fulfils_every_requirement_that_begins_with_it(version: str) -> None:
    assert all(Requirement(op + version).admits(version) for op in ("", "=", ">=", "<=", "~", "^"))
    assert not any(Requirement(op + version).admits(version) for op in ("<", ">"))


@given(versions, versions)
def test_a_bound_and_its_opposite_split_all_versions(bound: str, version: str) -> None:
    assert Requirement(f">={bound}").admits(version) != Requirement(f"<{bound}").admits(version)
    assert Requirement(f">{bound}").admits(version) != Requirement(f"<={bound}").admits(version)


@given(st.text(alphabet="0123456789.*xX<>=~^, -+ab", max_size=20))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    version_problem(text)
    try:
        Requirement(text).admits("0.1.5")
    except ValueError:
        return
