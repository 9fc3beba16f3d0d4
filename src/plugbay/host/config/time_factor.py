"""The factor of a slow machine on the times that the product allows."""

from __future__ import annotations

import os

from plugbay.model.errors import PlugbayError

TIME_FACTOR = "PLUGBAY_TIME_FACTOR"
"""Environment variable for a slow machine: factor on the contracts' timeouts for starts and calls."""


def time_factor() -> float:
    text = os.environ.get(TIME_FACTOR, "1")
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1 <= factor <= 100:
        raise PlugbayError(f"{TIME_FACTOR}={text!r} is not a number from 1 to 100; correct or remove it")
    return factor
