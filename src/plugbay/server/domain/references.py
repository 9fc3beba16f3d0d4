"""`secret://scope/name`: where a binding says which secret it means, and never what that is.

Pure. Owns the form of a reference and of a secret's name.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SCHEME = "secret://"

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"
"""Of a secret."""

_REFERENCE = re.compile(rf"secret://(?P<scope>[A-Za-z0-9][A-Za-z0-9_.-]{{0,63}})/(?P<name>{NAME})", re.ASCII)


class SecretRef(NamedTuple):
    """One secret, by whose it is and what it is called."""

    scope: str
    """An org, or a project."""
    name: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.scope}/{self.name}"


def parse(text: object) -> SecretRef | None:
    """The reference in a text; None: it is none. A key that somebody pasted is none, and is not to be quoted."""
    found = _REFERENCE.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else SecretRef(found["scope"], found["name"])
