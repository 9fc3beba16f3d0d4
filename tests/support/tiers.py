"""Which cases `make test` runs, and which only `make test-all` does: those marked `exhaustive`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

exhaustive = pytest.mark.exhaustive


def later(*values: Any) -> Any:
    """Parameters of a case that only `make test-all` runs."""
    return pytest.param(*values, marks=exhaustive)


def first_alone(values: Iterable[T]) -> list[Any]:
    """Parameters of which `make test` takes the first."""
    return one_of_each(values, lambda value: None)


def few(values: Iterable[T], number: int = 2) -> list[Any]:
    """Parameters of which `make test` takes the first few."""
    return [value if at < number else later(value) for at, value in enumerate(values)]


def one_of_each(values: Iterable[T], kind: Callable[[T], Hashable]) -> list[Any]:
    """Parameters of which `make test` takes the first of each kind."""
    seen: set[Hashable] = set()
    parameters: list[Any] = []
    for value in values:
        is_new = kind(value) not in seen
        seen.add(kind(value))
        parameters.append(value if is_new else later(value))
    return parameters


def these(values: Iterable[T], chosen: Callable[[T], bool]) -> list[Any]:
    """Parameters of which `make test` takes the chosen ones."""
    return [value if chosen(value) else later(value) for value in values]
