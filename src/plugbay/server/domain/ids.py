"""Ids: a prefix that says what it is, and 80 random bits. Opaque to everybody, and never with `/` or `:` in them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

RANDOM_BYTES = 10
"""Of each id: nobody guesses another tenant's."""

LONGEST = 64
"""Characters of an id that others may choose; the columns that hold ids are as wide."""

_ID = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{LONGEST - 1}}}", re.ASCII)

Ids = Callable[[str], str]
"""Makes an id with a prefix; passed in where a test wants to know them beforehand."""


def new_id(prefix: str) -> str:
    """`new_id("bind_")` → `bind_5f0c…`, 20 hexadecimal digits behind the prefix."""
    return prefix + os.urandom(RANDOM_BYTES).hex()


def is_id(text: str) -> bool:
    """Whether a text can be an id at all."""
    return _ID.fullmatch(text) is not None
