"""Growth is seen, and noise is not growth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.soak.readings import MIB, PageReading, Reading, find_growth, find_page_growth

FLAT = [
    Reading(float(n), 90 * MIB + n % 3 * MIB, 60 + n % 5, 9 + n % 2, 10 * MIB + n * 4096, n * 10) for n in range(60)
]


FLAT_PAGES = [
    PageReading(float(n), 90 * MIB, 60, 9, 6 * MIB + n % 4 * MIB // 4, 4_000 + n % 7 * 50, 90, 200 * MIB + n % 3 * MIB)
    for n in range(60)
]


def test_noise_is_no_growth() -> None:
    assert find_growth(FLAT) == []
    assert find_page_growth(FLAT_PAGES) == []


def test_a_warm_up_is_no_growth() -> None:
    assert find_growth([replace(each, memory=30 * MIB) if each.seconds < 15 else each for each in FLAT]) == []


@pytest.mark.parametrize(
    ("field", "step", "named"),
    [
        ("memory", 1 * MIB, "memory grew"),
        ("descriptors", 1, "descriptors grew"),
        ("threads", 1, "threads grew"),
        ("disk", 8 * MIB, "data folder grew"),
    ],
)
def test_a_leak_is_named(field: str, step: int, named: str) -> None:
    leaking = [replace(each, **{field: getattr(each, field) + int(each.seconds) * step}) for each in FLAT]
    (problem,) = find_growth(leaking)
    assert named in problem


@pytest.mark.parametrize(
    ("field", "step"),
    [
        ("memory", MIB),
        ("descriptors", 1),
        ("threads", 1),
        ("heap", MIB // 5),
        ("nodes", 150),
        ("listeners", 5),
        ("renderers", 5 * MIB),
    ],
)
def test_a_leak_of_a_page_is_named(field: str, step: int) -> None:
    leaking = [replace(each, **{field: getattr(each, field) + int(each.seconds) * step}) for each in FLAT_PAGES]
    (problem,) = find_page_growth(leaking)
    assert problem.startswith(f"{field} grew from")


def test_too_few_readings_prove_nothing() -> None:
    assert find_growth(FLAT[:2]) and find_page_growth(FLAT_PAGES[:2])
