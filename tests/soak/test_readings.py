"""Growth is seen, and noise is not growth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.soak.readings import MIB, Reading, find_growth

FLAT = [
    Reading(float(n), 90 * MIB + n % 3 * MIB, 60 + n % 5, 9 + n % 2, 10 * MIB + n * 4096, n * 10) for n in range(60)
]


def test_noise_is_no_growth() -> None:
    assert find_growth(FLAT) == []


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


def test_too_few_readings_prove_nothing() -> None:
    assert find_growth(FLAT[:2])
