"""`[retention]` of plugbay.toml: how long a server keeps its records of what is over.

    [retention]
    calls = "30 days"
    invocations = "90 days"
    deliveries = "90 days"
    dead_letters = "forever"
    events = "90 days"
    audit = "forever"

Owns the fields, what may stand in them, and what is kept where nothing does. What is over, and how it is removed, is
the gateway's.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

FOREVER = "forever"

UNITS = {"hour": 3600, "day": 24 * 3600}

LONGEST = 36_500
"""Of either unit: a hundred years are for ever."""

_AGE = re.compile(r"([1-9][0-9]{0,4}) ?(hour|day)s?")


def seconds_of(value: object) -> float | None:
    """How long `"90 days"` or `"12 hours"` is; None: for ever. Raises `ValueError`.

    An hour is the least: who means less has forgotten a unit, and what was removed does not come back.
    """
    if value == FOREVER:
        return None
    found = _AGE.fullmatch(value) if isinstance(value, str) else None
    if found is None or int(found[1]) > LONGEST:
        raise ValueError(f'is a number of hours or days, like "12 hours" or "90 days", or "{FOREVER}"')
    return float(int(found[1]) * UNITS[found[2]])


Age = Annotated[float | None, BeforeValidator(seconds_of)]


def days(number: int) -> float:
    """So many days, in seconds."""
    return float(number * UNITS["day"])


class RetentionConfig(BaseModel):
    """Seconds for which each kind of record is kept once it is over; None: for ever."""

    model_config = ConfigDict(extra="forbid")

    calls: Age = days(30)
    """Calls of the plugins in the host's folders; of these the last 100,000 at most."""
    invocations: Age = days(90)
    """Of exports of packages: the record that grows fastest, one for each attempt."""
    deliveries: Age = days(90)
    """Of events to hooks that were acknowledged, refused or dropped, with their attempts."""
    dead_letters: Age = None
    """Deliveries that were tried often enough: somebody may still want to have them told again."""
    events: Age = days(90)
    """What hooks were told of; not before the last of its deliveries is gone."""
    audit: Age = None
    """Who changed what: how long that must be known is not for us to say."""
