"""Charts: values in, SVG out."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from plugbay.server.dashboard.charts import BARS, LINES, UNITS, Chart, Series, last_known, round_up, svg

SVG = "{http://www.w3.org/2000/svg}"


def chart(*values: float | None, form: str = LINES, title: str = "Calls", unit: str = "count") -> Chart:
    labels = tuple(f"12:{at:02}" for at in range(len(values)))
    return Chart("c", title, unit, labels, (Series("calls", "first", values),), form)


def drawn(of: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(str(svg(of)).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


def path_of(of: Chart) -> str:
    paths = [path.get("d", "") for path in drawn(of).iter(f"{SVG}path") if path.get("class") != "grid"]
    return paths[0]


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ((0.0, 10.0), "M150 100L450 0"),
        ((10.0, None, 5.0), "M100 0h0M500 50h0"),
        ((0.0, 10.0, None, 5.0, 5.0), "M60 100L180 0M420 50L540 50"),
        ((None, None), ""),
        ((), ""),
    ],
    ids=["a line", "dots between gaps", "a gap", "no values", "no points"],
)
def test_a_line_has_gaps_where_there_is_no_value(values: tuple[float | None, ...], path: str) -> None:
    assert path_of(chart(*values)) == path


def test_bars_stand_on_the_lower_edge() -> None:
    assert path_of(chart(0.0, 5.0, None, 10.0, form=BARS)) == "M165 100V50h120V100zM465 100V0h120V100z"


@pytest.mark.parametrize(
    ("unit", "value", "top"),
    [
        ("count", 0, 5),
        ("count", 6, 10),
        ("count", 10, 10),
        ("count", 11, 20),
        ("count", 999, 1000),
        ("count", 1000, 1000),
        ("percent", 3, 10),
        ("percent", 100, 100),
        ("time", 0.2, 1),
        ("time", 2_100, 5_000),
        ("memory", 5, 1 << 20),
        ("memory", (3 << 20) + 1, 4 << 20),
        ("memory", 1 << 29, 1 << 29),
        ("cores", 0.15, 0.2),
        ("cores", float("nan"), 0.1),
    ],
)
def test_the_scale_ends_at_a_round_number(unit: str, value: float, top: float) -> None:
    assert round_up(value, UNITS[unit]) == pytest.approx(top)


def test_every_power_is_its_own_top() -> None:
    for power in range(3, 15):
        assert round_up(10.0**power, UNITS["count"]) == pytest.approx(10.0**power)
        assert round_up(2.0 ** (power + 20), UNITS["memory"]) == 2.0 ** (power + 20)


def test_a_drawing_is_described_for_those_who_do_not_see_it() -> None:
    made = drawn(chart(1.0, 7.0, 3.0))
    assert (made.get("role"), made.get("aria-labelledby")) == ("img", "c-title c-about")
    texts = {each.get("id"): each.text for each in made if each.get("id")}
    assert texts == {"c-title": "Calls", "c-about": "calls: 3 at last, highest 7 at 12:01"}
    assert [point[0].text for point in made.iter(f"{SVG}rect")] == [
        "12:00: calls 1",
        "12:01: calls 7",
        "12:02: calls 3",
    ]
    assert chart(None).description == "calls: no values"


def test_text_is_escaped_and_nothing_is_styled_in_place() -> None:
    text = str(svg(chart(1.0, title="<script>alert(1)</script>")))
    assert "<script" not in text and "&lt;script&gt;" in text and "style=" not in text


def test_the_latest_value_is_the_last_that_is_known() -> None:
    assert last_known((1.0, None)) == 1.0 and last_known((None,)) is None
    made = chart(2.0, None, unit="cores")
    assert (made.scale, made.latest[0][1]) == ("2.00 cores", "2.00 cores")
    assert chart(None).latest[0][1] == "none"


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("count", 1200.0, "1,200"),
        ("percent", 33.333, "33.3 %"),
        ("time", 1500.0, "1.50 s"),
        ("memory", 3 << 19, "1.5 MiB"),
    ],
)
def test_values_are_written_in_their_unit(unit: str, value: float, text: str) -> None:
    assert chart(unit=unit).text(value) == text
