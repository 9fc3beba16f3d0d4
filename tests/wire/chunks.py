"""Ways to cut a byte stream, for tests of decoders that must not care."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """`data` in pieces, cut at `places` (taken modulo its length)."""
    edges = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(edges)]


def one_by_one(data: bytes) -> list[bytes]:
    """The cruellest cut."""
    return [data[index : index + 1] for index in range(len(data))]


places = st.lists(st.integers(min_value=0, max_value=10_000), max_size=12)
