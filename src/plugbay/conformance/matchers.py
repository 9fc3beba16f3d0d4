"""Whether a JSON value is what a scenario expects, and if not, where it differs.

Owns the pattern language. Pure: it is given the pattern, the value and the named values of the run. Refuses
to know what a message is for.

    "text", 1, true, null      that very value; a number never equals a boolean
    [p, q]                     exactly these items
    {"key": p, "other?": q}    `key` must be there, `other` may be; keys not named here are fine
    {"key": "$absent"}         `key` must not be there
    "$name"                    the named value of the run (`$plugin_id`)
    "$nonblank"                one of `words`
    {"$one_of": [p, q]}        one of OPERATORS
    "$$text"                   the text `$text`
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from plugbay.conformance import comparing
from plugbay.conformance.comparing import is_integer, same, topic_matches
from plugbay.conformance.words import WORDS

SHOWN = 120
"""Characters of a value that a mismatch shows; the whole frame is in the report anyway."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One difference: where, what the pattern wants, what is there."""

    path: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected}, got {self.got}"


Named = Mapping[str, Any]
Operator = Callable[[Any, Any, str, Named], list[Mismatch]]


def match(pattern: Any, value: Any, named: Named | None = None) -> list[Mismatch]:
    """Every difference between `value` and `pattern`; empty when it fits."""
    return _match(pattern, value, "$", {} if named is None else named)


def pattern_problems(pattern: Any, names: Collection[str]) -> list[str]:
    """What is wrong with a pattern itself: unknown words, operators with the wrong argument."""
    if isinstance(pattern, str):
        return _word_problems(pattern, names)
    if isinstance(pattern, list):
        return [problem for item in pattern for problem in pattern_problems(item, names)]
    if not isinstance(pattern, dict):
        return []
    operators = [key for key in pattern if key.startswith("$")]
    if not operators:
        inner = [item for item in pattern.values() if item != ABSENT]
        return [problem for item in inner for problem in pattern_problems(item, names)]
    if len(pattern) > 1:
        return [f"{operators[0]!r} must be the only key of its object"]
    return _operator_problems(operators[0], pattern[operators[0]], names)


def _word_problems(text: str, names: Collection[str]) -> list[str]:
    if not text.startswith("$") or text.startswith("$$") or text in WORDS or text[1:] in names:
        return []
    return [f"{text!r} is neither a matcher nor a named value"]


def _operator_problems(operator: str, argument: Any, names: Collection[str]) -> list[str]:
    if operator in _OF_PATTERNS:
        if not isinstance(argument, list) or not argument:
            return [f"{operator!r} needs a list of patterns"]
        return pattern_problems(argument, names)
    if operator in _OF_VALUES:
        named = isinstance(argument, str) and argument.startswith("$") and argument[1:] in names
        fits = named or isinstance(argument, list)
        return [] if fits else [f"{operator!r} needs a list or the name of one"]
    if operator == "$only" and not isinstance(argument, dict):
        return ["'$only' needs an object"]
    if operator in _OF_ITS_OWN:
        test, wants = _OF_ITS_OWN[operator]
        return [] if test(argument) else [f"{operator!r} needs {wants}"]
    if operator in OPERATORS:
        return pattern_problems(argument, names)
    return [f"{operator!r} is not an operator"]


def _match(pattern: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    if isinstance(pattern, str) and pattern.startswith("$"):
        return _match_word(pattern, value, path, named)
    if isinstance(pattern, dict):
        operator = next((key for key in pattern if key.startswith("$")), None)
        if operator is not None:
            return OPERATORS[operator](pattern[operator], value, path, named)
        return _match_object(pattern, value, path, named)
    if isinstance(pattern, list):
        return _match_items(pattern, value, path, named)
    return _match_literal(pattern, value, path)


def _match_word(word: str, value: Any, path: str, named: Named) -> list[Mismatch]:
    if word.startswith("$$"):
        return _match_literal(word[1:], value, path)
    if word in WORDS:
        expected, test = WORDS[word]
        return [] if test(value) else [Mismatch(path, expected, shown(value))]
    return _match_literal(named[word[1:]], value, path)


def _match_literal(expected: Any, value: Any, path: str) -> list[Mismatch]:
    return [] if same(expected, value) else [Mismatch(path, shown(expected), shown(value))]


def _match_object(pattern: dict[str, Any], value: Any, path: str, named: Named) -> list[Mismatch]:
    if not isinstance(value, dict):
        return [Mismatch(path, "an object", shown(value))]
    found: list[Mismatch] = []
    for key, inner in pattern.items():
        name = key.removesuffix("?")
        where = f"{path}.{name}"
        if inner == ABSENT:
            found += [Mismatch(where, "nothing", shown(value[name]))] if name in value else []
        elif name in value:
            found += _match(inner, value[name], where, named)
        elif name == key:
            found.append(Mismatch(where, _described(inner, named), "nothing"))
    return found


def _match_items(pattern: list[Any], value: Any, path: str, named: Named) -> list[Mismatch]:
    if not isinstance(value, list) or len(value) != len(pattern):
        return [Mismatch(path, f"an array of {len(pattern)}", shown(value))]
    pairs = zip(pattern, value, strict=True)
    return [miss for at, (inner, item) in enumerate(pairs) for miss in _match(inner, item, f"{path}[{at}]", named)]


# Operators: (argument, value, path, named values) → differences.


def _one_of(patterns: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    if any(not _match(pattern, value, path, named) for pattern in patterns):
        return []
    wanted = " or ".join(_described(pattern, named) for pattern in patterns)
    return [Mismatch(path, wanted, shown(value))]


def _all_of(patterns: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    return [miss for pattern in patterns for miss in _match(pattern, value, path, named)]


def _each(pattern: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    if not isinstance(value, list):
        return [Mismatch(path, "an array", shown(value))]
    return [miss for at, item in enumerate(value) for miss in _match(pattern, item, f"{path}[{at}]", named)]


def _subset_of(argument: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    allowed = _values(argument, named)
    if not isinstance(value, list):
        return [Mismatch(path, "an array", shown(value))]
    expected = f"one of {shown(allowed)}"
    return [
        Mismatch(f"{path}[{at}]", expected, shown(item))
        for at, item in enumerate(value)
        if not any(same(item, one) for one in allowed)
    ]


def _superset_of(argument: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    if not isinstance(value, list):
        return [Mismatch(path, "an array", shown(value))]
    wanted = _values(argument, named)
    missing = [one for one in wanted if not any(same(one, item) for item in value)]
    return [Mismatch(path, f"{shown(one)} among its items", shown(value)) for one in missing]


def _among(argument: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    allowed = _values(argument, named)
    fits = any(same(value, one) for one in allowed)
    return [] if fits else [Mismatch(path, f"one of {shown(allowed)}", shown(value))]


def _begins_with(argument: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    beginnings = _values(argument, named)
    fits = isinstance(value, str) and value.startswith(tuple(beginnings))
    return [] if fits else [Mismatch(path, f"a text that begins with one of {shown(beginnings)}", shown(value))]


def _only(pattern: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    """The object has no keys but those of the pattern."""
    known = {key.removesuffix("?") for key in pattern}
    others = [key for key in value if key not in known] if isinstance(value, dict) else []
    return [
        *_match_object(pattern, value, path, named),
        *(Mismatch(f"{path}.{key}", "nothing", shown(value[key])) for key in others),
    ]


def _distinct(key: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    """No two objects of the array have the same value under this key."""
    items = [item.get(key) for item in value if isinstance(item, dict)] if isinstance(value, list) else []
    return [
        Mismatch(f"{path}[].{key}", "a value that no other item has", shown(item))
        for at, item in enumerate(items)
        if any(same(item, earlier) for earlier in items[:at])
    ]


def _between(bounds: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    low, high = bounds
    fits = is_integer(value) and low <= value <= high
    return [] if fits else [Mismatch(path, f"an integer from {low} to {high}", shown(value))]


def _bytes(bounds: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    low, high = bounds
    fits = isinstance(value, str) and low <= len(value.encode("utf-8", "surrogatepass")) <= high
    return [] if fits else [Mismatch(path, f"a text of {low} to {high} bytes", shown(value))]


def _topic_among(argument: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    """A topic without wildcards that one of these patterns covers."""
    patterns = _values(argument, named)
    fits = isinstance(value, str) and any(topic_matches(pattern, value) for pattern in patterns)
    return [] if fits else [Mismatch(path, f"a topic covered by one of {shown(patterns)}", shown(value))]


def _contains(pattern: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    if isinstance(value, list) and any(not _match(pattern, item, path, named) for item in value):
        return []
    if isinstance(value, str) and isinstance(pattern, str) and pattern in value:
        return []
    return [Mismatch(path, f"something with {_described(pattern, named)}", shown(value))]


def _decodes_to(pattern: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    """Bytes in base64 which say in JSON or MessagePack what fits."""
    try:
        return _match(pattern, comparing.decoded(value), f"{path}()", named)
    except comparing.Undecodable as reason:
        return [Mismatch(path, "base64 of JSON or MessagePack", f"{shown(value)}: {reason}")]


def _faultless(words: str, fault_in: Callable[[Any], str]) -> Operator:
    """An operator that looks at the order of a list; its argument says nothing."""

    def operator(argument: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
        fault = fault_in(value)
        return [Mismatch(path, words, fault)] if fault else []

    return operator


def _compared(words: str, fits: Callable[[Any, Any], bool]) -> Operator:
    """An operator that compares with a value, which may be a named one."""

    def operator(argument: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
        other = named[argument[1:]] if isinstance(argument, str) else argument
        return [] if fits(value, other) else [Mismatch(path, f"{words} {shown(other)}", shown(value))]

    return operator


def _undamaged(text: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    """Wherever the first and the last word of `text` come back in one string, all of it must be there."""
    words = text.split()
    broken = [
        (where, found)
        for where, found in comparing.strings(value, path)
        if words[0] in found and words[-1] in found and text not in found
    ]
    return [Mismatch(where, f"{shown(text)} unchanged", shown(found)) for where, found in broken]


def _values(argument: Any, named: Named) -> list[Any]:
    return list(named[argument[1:]] if isinstance(argument, str) else argument)


OPERATORS: dict[str, Operator] = {
    "$one_of": _one_of,
    "$all_of": _all_of,
    "$each": _each,
    "$subset_of": _subset_of,
    "$superset_of": _superset_of,
    "$among": _among,
    "$begins_with": _begins_with,
    "$topic_among": _topic_among,
    "$only": _only,
    "$distinct": _distinct,
    "$between": _between,
    "$bytes": _bytes,
    "$contains": _contains,
    "$decodes_to": _decodes_to,
    "$chunks_in_order": _faultless("every chunk after the one before it", comparing.chunk_fault),
    "$events_in_time": _faultless("every event before the response to its request", comparing.event_fault),
    "$answers_each": _compared("one response to each of", comparing.answers_each),
    "$without": _compared("nothing with", comparing.lacks),
    "$fits": _compared("what fits the schema", comparing.fits_schema),
    "$keeps": _compared("structuredContent that fits the schema", comparing.keeps_schema),
    "$apart_from": _compared("an array with no item of", comparing.is_apart),
    "$covered_by": _compared("a topic covered by one of", comparing.is_covered),
    "$under": _compared("an absolute path under one of", comparing.is_under),
    "$includes": _compared("an object with all of", comparing.includes),
    "$below": _compared("an integer that is not negative and below", comparing.is_below),
    "$undamaged": _undamaged,
}

ABSENT = "$absent"
"""As the value of a key: the key must not be there."""

_OF_PATTERNS = frozenset({"$one_of", "$all_of"})
_OF_VALUES = frozenset(
    {"$subset_of", "$superset_of", "$among", "$begins_with", "$topic_among", "$covered_by", "$under"}
)
_OF_ITS_OWN: dict[str, tuple[Callable[[Any], bool], str]] = {
    "$undamaged": (lambda text: isinstance(text, str) and len(text.split()) > 1, "a text of at least two words"),
    "$distinct": (lambda key: isinstance(key, str), "the name of a key"),
    "$between": (lambda ends: _are_two_integers(ends), "two integers"),
    "$bytes": (lambda ends: _are_two_integers(ends), "two integers"),
}
"""Operators whose argument is no pattern: whether one fits, and what is needed, in words."""


def _are_two_integers(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_integer, value))


def shown(value: Any) -> str:
    """A value as JSON, cut to what fits a line."""
    text = json.dumps(value, ensure_ascii=False, default=list)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _described(pattern: Any, named: Named) -> str:
    if isinstance(pattern, str) and pattern in WORDS:
        return WORDS[pattern][0]
    if isinstance(pattern, str) and pattern.startswith("$") and pattern[1:] in named:
        return shown(named[pattern[1:]])
    return shown(pattern)
