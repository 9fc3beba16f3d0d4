"""Charts as SVG, drawn on the server. Pure: values in, SVG out.

The drawing is stretched to the width of its place, so it contains no visible text: titles and scales are HTML around
it. It has a title and a description for screen readers, and a tooltip for each point; the page has a table beside it.
Colours are classes of the stylesheet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
from markupsafe import Markup, escape

from plugbay.server.dashboard.text import duration, megabytes

WIDTH, HEIGHT = 600, 100
"""Of the drawing, in its own units."""

BARS, LINES = "bars", "lines"

NO_VALUE = "none"


class Unit(msgspec.Struct, frozen=True):
    """How values are written, and the base of round numbers on the scale."""

    text: Callable[[float], str]
    steps: tuple[float, ...] = (1, 2, 5)
    base: int = 10
    least: float = 1.0
    """The least top of a scale: the noise of an idle server is no mountain."""


UNITS = {
    "count": Unit(lambda value: f"{value:,.0f}", least=5),
    "percent": Unit(lambda value: f"{value:.3g} %", least=10),
    "time": Unit(duration, least=1),
    "memory": Unit(megabytes, (1,), 2, 1 << 20),
    "cores": Unit(lambda value: f"{value:.2f} cores", least=0.1),
}


class Series(msgspec.Struct, frozen=True):
    """One line, or the bars of one colour. None: there is no value, and the line has a gap."""

    name: str
    tone: str
    """The class of its colour."""
    values: tuple[float | None, ...]


class Chart(msgspec.Struct, frozen=True):
    """Values over time; all series have one value for each label."""

    key: str
    """The id of its element."""
    title: str
    unit: str
    """One of `UNITS`."""
    labels: tuple[str, ...]
    """The moment of each point."""
    series: tuple[Series, ...]
    form: str = LINES

    @property
    def top(self) -> float:
        """The value at the upper edge."""
        return round_up(max(self._known(), default=0.0), UNITS[self.unit])

    @property
    def scale(self) -> str:
        """The upper edge in words."""
        return self.text(self.top)

    @property
    def latest(self) -> tuple[tuple[Series, str], ...]:
        """The last known value of each series."""
        return tuple((each, self.text(last_known(each.values))) for each in self.series)

    @property
    def description(self) -> str:
        """The chart in a sentence."""
        parts = []
        for each in self.series:
            known = [(value, label) for value, label in zip(each.values, self.labels, strict=True) if value is not None]
            if not known:
                parts.append(f"{each.name}: no values")
                continue
            highest, at = max(known, key=lambda pair: pair[0])
            latest = self.text(last_known(each.values))
            parts.append(f"{each.name}: {latest} at last, highest {self.text(highest)} at {at}")
        return "; ".join(parts)

    def text(self, value: float | None) -> str:
        """A value in words."""
        return NO_VALUE if value is None else UNITS[self.unit].text(value)

    def _known(self) -> list[float]:
        return [value for each in self.series for value in each.values if value is not None]


def last_known(values: Sequence[float | None]) -> float | None:
    """The last value that is not None."""
    return next((value for value in reversed(values) if value is not None), None)


def round_up(value: float, unit: Unit) -> float:
    """The next round number: 1, 2 or 5 times a power of ten, or a power of two."""
    if not value > unit.least:
        return unit.least
    power = float(unit.base) ** math.floor(math.log(value, unit.base))
    tops = [step * power * more for more in (1, unit.base) for step in unit.steps]
    # The logarithm of a power may be rounded to either side of it.
    return next(top for top in (*tops, tops[-1] * unit.base) if top >= value * (1 - 1e-12))


def svg(chart: Chart) -> Markup:
    """The drawing."""
    draw = _bars if chart.form == BARS else _line
    shapes = Markup("").join(
        Markup('<path class="{} {}" d="{}"/>').format(chart.form, each.tone, draw(each.values, chart.top))
        for each in chart.series
    )
    return Markup(
        '<svg class="drawing" role="img" aria-labelledby="{key}-title {key}-about" viewBox="0 0 {width} {height}" '
        'preserveAspectRatio="none"><title id="{key}-title">{title}</title><desc id="{key}-about">{about}</desc>'
        '<path class="grid" d="M0 0H{width}M0 {middle}H{width}M0 {height}H{width}"/>{shapes}{points}</svg>'
    ).format(
        key=chart.key,
        title=chart.title,
        about=chart.description,
        width=WIDTH,
        height=HEIGHT,
        middle=HEIGHT // 2,
        shapes=shapes,
        points=_points(chart),
    )


def _line(values: Sequence[float | None], top: float) -> str:
    """A path with a gap where there is no value; a value between two gaps is a dot."""
    step, parts, pen = WIDTH / max(1, len(values)), [], False
    for at, value in enumerate(values):
        if value is None:
            pen = False
            continue
        parts.append(f"{'L' if pen else 'M'}{_number((at + 0.5) * step)} {_height(value, top)}")
        alone = not pen and (at + 1 == len(values) or values[at + 1] is None)
        if alone:
            parts.append("h0")
        pen = True
    return "".join(parts)


def _bars(values: Sequence[float | None], top: float) -> str:
    step = WIDTH / max(1, len(values))
    return "".join(
        f"M{_number((at + 0.1) * step)} {HEIGHT}V{_height(value, top)}h{_number(0.8 * step)}V{HEIGHT}z"
        for at, value in enumerate(values)
        if value
    )


def _points(chart: Chart) -> Markup:
    """An invisible area for each point with the values in words."""
    step, made = WIDTH / max(1, len(chart.labels)), []
    for at, label in enumerate(chart.labels):
        known = [(each.name, each.values[at]) for each in chart.series if each.values[at] is not None]
        if known:
            words = ", ".join(f"{name} {chart.text(value)}" for name, value in known)
            area = Markup('<rect class="point" x="{}" width="{}" height="{}"><title>{}</title></rect>')
            made.append(area.format(_number(at * step), _number(step), HEIGHT, escape(f"{label}: {words}")))
    return Markup("").join(made)


def _height(value: float, top: float) -> str:
    return _number(HEIGHT - max(0.0, min(value, top)) / top * HEIGHT)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
