"""Versions as Cargo reads them: strict three-part ones, and requirements such as `>=0.1.0, <0.3`.

Owns their grammar and meaning. Every comparator is one half-open range of versions, so there is nothing to interpret
when a version is compared with it.
"""

from __future__ import annotations

import math
import re

Bound = tuple[float, float, float]

_NUMBER = r"(?:0|[1-9][0-9]*)"
_TAIL = r"(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
_VERSION = re.compile(rf"(?P<major>{_NUMBER})\.(?P<minor>{_NUMBER})\.(?P<patch>{_NUMBER}){_TAIL}")
_COMPARATOR = re.compile(
    rf"(?P<op>>=|<=|[=><~^])? *(?P<major>{_NUMBER})"
    rf"(?:\.(?P<minor>{_NUMBER}|[*xX])(?:\.(?P<patch>{_NUMBER}|[*xX]){_TAIL})?)?"
)
_WILDCARDS = frozenset("*xX")

MAX_COMPARATORS = 32
"""As many as Cargo takes in one requirement."""

_LARGEST = (1 << 64) - 1
"""Each number of a version fits 64 bits."""

LOWEST: Bound = (0, 0, 0)
BEYOND_ALL: Bound = (math.inf, 0, 0)


def version_problem(text: str) -> str | None:
    """Why `text` is not a version; None when it is one."""
    match = _VERSION.fullmatch(text)
    if match is None or not _numbers_fit(match) or not _pre_release_fits(match["pre"]):
        return f"{text!r} is not a version such as '0.2.0'"
    return None


class Requirement:
    """The requirement of `min_nexo_version`. Raises ValueError for text that is not a requirement."""

    def __init__(self, text: str) -> None:
        self._ranges: list[tuple[Bound, Bound]] = []
        if text.strip(" ") in _WILDCARDS:
            return
        comparators = text.split(",")
        if len(comparators) > MAX_COMPARATORS:
            raise ValueError(f"has more than {MAX_COMPARATORS} comparators")
        self._ranges = [_range(comparator.strip(" ")) for comparator in comparators]

    def admits(self, version: str) -> bool:
        """Whether `version` fulfils it. Its pre-release tag is not looked at: 0.2.0-rc.1 counts as 0.2.0."""
        match = _VERSION.fullmatch(version)
        if match is None:
            raise ValueError(f"{version!r} is not a version")
        here = (int(match["major"]), int(match["minor"]), int(match["patch"]))
        return all(low <= here < high for low, high in self._ranges)


def _range(text: str) -> tuple[Bound, Bound]:
    found = _COMPARATOR.fullmatch(text)
    if found is None or not _numbers_fit(found) or not _pre_release_fits(found["pre"]):
        raise ValueError(f"{text!r} is not a version requirement such as '>=0.1.0'")
    given = _given(found)
    low = _padded(given)
    # A pre-release comes before its release, and the compared version is always a release.
    after = low if found["pre"] else _next(given, len(given))
    wildcard = bool(_WILDCARDS & {found["minor"], found["patch"]})
    match found["op"] or ("=" if wildcard else "^"):
        case "=":
            return low, after
        case ">":
            return after, BEYOND_ALL
        case ">=":
            return low, BEYOND_ALL
        case "<":
            return LOWEST, low
        case "<=":
            return LOWEST, after
        case "~":
            return low, _next(given, min(len(given), 2))
        case _:
            return low, _next(given, _significant(given))


def _given(match: re.Match[str]) -> list[int]:
    """The numbers before the first wildcard."""
    numbers: list[int] = []
    for part in (match["major"], match["minor"], match["patch"]):
        if part is None or part in _WILDCARDS:
            break
        numbers.append(int(part))
    if match["minor"] in _WILDCARDS and match["patch"] not in {None, *_WILDCARDS}:
        raise ValueError(f"{match[0]!r} has a number after a wildcard")
    return numbers


def _significant(given: list[int]) -> int:
    """How many numbers a caret holds still: up to the first that is not zero, or all of them."""
    return next((at for at, number in enumerate(given, 1) if number), len(given))


def _next(given: list[int], length: int) -> Bound:
    """The first version whose leading `length` numbers are greater."""
    return _padded([*given[: length - 1], given[length - 1] + 1])


def _padded(numbers: list[int]) -> Bound:
    major, minor, patch = (*numbers, 0, 0)[:3]
    return major, minor, patch


def _numbers_fit(match: re.Match[str]) -> bool:
    numbers = [match[name] for name in ("major", "minor", "patch")]
    # The length first: Python refuses to convert thousands of digits.
    return all(len(text) <= 20 and int(text) <= _LARGEST for text in numbers if text and text not in _WILDCARDS)


def _pre_release_fits(tag: str | None) -> bool:
    """A number in a tag has no leading zero."""
    parts = tag.split(".") if tag else []
    return not any(part.isdigit() and len(part) > 1 and part.startswith("0") for part in parts)
