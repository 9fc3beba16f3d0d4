"""Figures of one load, as a table or as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one load by row, and what went wrong."""

    title: str
    rows: Mapping[str, Mapping[str, float]]
    problems: Sequence[str] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        return {"title": self.title, "rows": self.rows, "problems": list(self.problems)}

    def table(self) -> str:
        """A line for each figure, by row."""
        lines = [self.title]
        for row, figures in self.rows.items():
            lines += [f"  {row:10} {name:24} {value:12,.3f}" for name, value in figures.items()]
        return "\n".join(lines)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of sorted values; 0 of none."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
