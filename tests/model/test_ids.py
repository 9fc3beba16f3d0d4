"""Which names are safe and how ids look."""

from __future__ import annotations

import pytest

from plugbay.model.ids import CALL_ID_BYTES, call_ids, full_name, id_problem


def test_a_call_id_is_its_entropy_in_hex() -> None:
    assert call_ids(bytes(range(2 * CALL_ID_BYTES))) == ["call_00010203040506070809", "call_0a0b0c0d0e0f10111213"]


def test_a_full_name_joins_plugin_and_export() -> None:
    assert full_name("example.weather", "forecast") == "example.weather/forecast"


@pytest.mark.parametrize("bad", ["", "  ", ".", "..", "a/b", "a\\b", "a\nb", "a\0b", "\x7f", "x" * 201])
def test_an_id_that_could_leave_its_folder_or_break_a_log_is_refused(bad: str) -> None:
    assert id_problem(bad)


@pytest.mark.parametrize("good", ["example.weather", "a", "ünï", "x" * 200, "with space"])
def test_an_ordinary_id_is_fine(good: str) -> None:
    assert id_problem(good) is None
