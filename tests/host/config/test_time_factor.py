"""The factor of a slow machine: a number from 1 to 100, or a clear error."""

from __future__ import annotations

import pytest

from plugbay.host.config.time_factor import TIME_FACTOR, time_factor
from plugbay.model.errors import PlugbayError


@pytest.mark.parametrize(("text", "factor"), [("1", 1.0), ("2.5", 2.5), ("100", 100.0)])
def test_the_factor_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, text: str, factor: float) -> None:
    monkeypatch.setenv(TIME_FACTOR, text)
    assert time_factor() == factor


def test_without_the_variable_the_factor_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TIME_FACTOR)
    assert time_factor() == 1.0


@pytest.mark.parametrize("text", ["", "fast", "0.5", "101", "nan"])
def test_an_invalid_factor_is_reported(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(TIME_FACTOR, text)
    with pytest.raises(PlugbayError, match="is not a number from 1 to 100"):
        time_factor()
