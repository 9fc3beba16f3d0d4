"""Runs of the kit in each other's company: most of one goes by waiting for a plugin that says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE = 6
"""More would be late for other reasons than the one in question."""


def together(work: Callable[[T], R], items: Sequence[T], at_once: int = AT_ONCE) -> Iterator[tuple[T, R]]:
    """Each item with what came of it, in their order."""
    with ThreadPoolExecutor(at_once) as pool:
        yield from zip(items, pool.map(work, items), strict=True)
