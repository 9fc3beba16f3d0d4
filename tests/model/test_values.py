"""Values compare and print by their fields."""

from __future__ import annotations

from plugbay.model.values import Value


class Point(Value):
    __slots__ = ("x", "y")

    def __init__(self, x: int, y: object) -> None:
        self.x = x
        self.y = y


class Spot(Point):
    __slots__ = ()


def test_values_with_equal_fields_are_equal_and_hash_alike() -> None:
    assert Point(1, [2]) == Point(1, [2])
    assert hash(Point(1, [2])) == hash(Point(1, [2]))


def test_values_differ_by_field_and_by_class() -> None:
    assert Point(1, 2) != Point(1, 3)
    assert Point(1, 2) != Spot(1, 2)
    assert Point(1, 2) != (1, 2)


def test_a_value_prints_its_fields() -> None:
    assert repr(Point(1, "a")) == "Point(x=1, y='a')"
