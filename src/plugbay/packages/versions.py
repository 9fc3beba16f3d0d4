"""Which of two versions is the newer: as SemVer says, and something sensible for versions that are none.

Pure. Contracts have their own rules for what a version may be; a store has to compare whatever they let through.
"""

from __future__ import annotations

import re

_PIECES = re.compile(r"[0-9]+|[^0-9.]+")

Key = tuple[tuple[int, int, str], ...]


def is_older(version: str, than: str) -> bool:
    """Whether `version` comes before `than`; build metadata (`+…`) says nothing about order."""
    return key(version) < key(than)


def key(version: str) -> tuple[Key, bool, Key]:
    """Sorts versions: numbers as numbers, `1.0` like `1.0.0`, and `1.0.0-rc.1` before `1.0.0`."""
    text = version.strip().partition("+")[0].removeprefix("v")
    release, dash, pre_release = text.partition("-")
    return _released(release), not dash, _identifiers(pre_release)


def _released(text: str) -> Key:
    pieces = [_part(piece) for piece in _PIECES.findall(text)]
    while pieces and pieces[-1] == _part("0"):
        pieces.pop()
    return tuple(pieces)


def _identifiers(text: str) -> Key:
    return tuple(_part(piece) for piece in text.split(".")) if text else ()


def _part(piece: str) -> tuple[int, int, str]:
    """Numbers come before words, as in SemVer."""
    # Compared by length first, then by text: no number is too long for it.
    digits = piece.lstrip("0")
    return (0, len(digits), digits) if piece.isascii() and piece.isdigit() else (1, 0, piece)
