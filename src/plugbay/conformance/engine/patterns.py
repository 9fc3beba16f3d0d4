"""Matches JSON values against the patterns of scenarios and reports each difference.

Pure: the pattern, the value and the named values of the run come in as arguments.

    "text", 1, true, null      that very value; a number never equals a boolean
    [p, q]                     exactly these items
    {"key": p, "other?": q}    `key` must be there, `other` may be; other keys are ignored
    {"key": "$absent"}         `key` must not be there
    "$name"                    the named value of the run (`$plugin_id`)
    "$nonblank"                one of WORDS
    {"$one_of": [p, q]}        one of OPERATORS
    "$$text"                   the text `$text`
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

import msgspec

from plugbay.contracts.schemas import compile_schema, schema_problem
from plugbay.model.topics import ANY, REST, matches


class Undecodable(Exception):
    """A payload that is neither JSON nor MessagePack."""


# Topics and paths.


def is_covered(topic: Any, entries: Sequence[str]) -> bool:
    """An entry is a topic, or the beginning of some when it ends in `*`."""
    if not isinstance(topic, str) or not topic:
        return False
    return any(topic.startswith(entry[:-1]) if entry.endswith("*") else topic == entry for entry in entries)


def is_under(path: Any, roots: Sequence[str]) -> bool:
    """An absolute path without `..` that is one of the roots or below it, part by part."""
    if not isinstance(path, str) or not path.startswith("/") or ".." in path.split("/"):
        return False
    return any(PurePosixPath(path).is_relative_to(root) for root in roots)


# Values.


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_equal(one: Any, other: Any) -> bool:
    """Equality as JSON has it: `1` equals `1.0`, and neither equals `true`."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    return bool(one == other)


def includes(whole: Any, part: Any) -> bool:
    """Whether every key of `part`, at any depth of objects, is in `whole` with the same value."""
    if not isinstance(part, dict):
        return type(whole) is type(part) and bool(whole == part)
    return isinstance(whole, dict) and all(key in whole and includes(whole[key], value) for key, value in part.items())


def strings(value: Any, path: str) -> list[tuple[str, str]]:
    """Every string in a value, with its path; one that is an object or an array in JSON is looked into."""
    found: list[tuple[str, str]] = []
    todo = [(path, value)]
    for where, item in todo:
        item = _unfold(item)
        if isinstance(item, str):
            found.append((where, item))
        elif isinstance(item, dict):
            todo += [(f"{where}.{key}", inner) for key, inner in item.items()]
        elif isinstance(item, list):
            todo += [(f"{where}[{at}]", inner) for at, inner in enumerate(item)]
    return found


def _unfold(item: Any) -> Any:
    """The JSON value of a text, where it has one."""
    if not isinstance(item, str) or item[:1] not in ("{", "["):
        return item
    try:
        return json.loads(item)
    except ValueError:
        return item


def lacks(value: Any, text: str) -> bool:
    """Whether a text is nowhere in a value, keys included."""
    return text not in json.dumps(value, ensure_ascii=False)


def fits_schema(value: Any, schema: Any) -> bool:
    """Whether a JSON Schema allows a value."""
    return bool(compile_schema(schema).is_valid(value))


def keeps_schema(result: Any, schema: Any) -> bool:
    """Whether the result of a tool has the structured content that its schema promises; an empty one promises none."""
    if not schema:
        return True
    return (
        isinstance(result, dict) and "structuredContent" in result and fits_schema(result["structuredContent"], schema)
    )


def is_schema(value: Any) -> bool:
    """Whether something is a JSON Schema, of its own dialect or of the usual one."""
    return isinstance(value, dict) and schema_problem(value) is None


def is_apart(items: Any, others: Sequence[Any]) -> bool:
    """Whether an array has nothing in common with another."""
    return isinstance(items, list) and not any(is_equal(item, other) for item in items for other in others)


def is_below(value: Any, end: int) -> bool:
    return is_integer(value) and 0 <= value < end


def decode_base64(text: Any) -> bytes:
    """The bytes of a text in base64 with its padding; raises `Undecodable`."""
    try:
        if isinstance(text, str):
            return binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError:
        pass
    raise Undecodable("not base64")


def decode_payload(text: Any) -> Any:
    """The value of a base64 payload in JSON or MessagePack; raises `Undecodable`."""
    data = decode_base64(text)
    try:
        return json.loads(data)
    except ValueError:
        pass
    try:
        return msgspec.msgpack.decode(data)
    except (ValueError, RecursionError):
        raise Undecodable("neither JSON nor MessagePack") from None


# Chunks.


def chunk_fault(publishes: Sequence[Any]) -> str:
    """The problem with the order of these chunks of events; empty when there is none.

    Of each topic, a publish begins with chunk 0 and goes on one by one, with one `published_ns`, up to the chunk that
    is final. It may begin anew at any time, but not end without an end.
    """
    open_chunks: dict[str, tuple[int, Any] | None] = {}
    for message in publishes:
        topic, chunk = message["params"]["topic"], decode_payload(message["params"]["payload"])
        index, batch = chunk.get("chunk_index", 0), chunk["published_ns"]
        before = open_chunks.get(topic)
        if index and (before is None or before != (index - 1, batch)):
            told = "no chunk that is still open" if before is None else f"chunk {before[0]} of published_ns {before[1]}"
            return f"chunk {index} of published_ns {batch} on {topic} follows {told}"
        open_chunks[topic] = None if chunk.get("is_final", True) else (index, batch)
    unfinished = [topic for topic, chunk in open_chunks.items() if chunk is not None]
    return f"the last publish on {unfinished[0]} has no final chunk" if unfinished else ""


# Frames with responses and the events before them.


def answers_each(frames: Any, requests: Sequence[Any]) -> bool:
    """Whether the ids of these responses are those of the requests, each once, in any order."""
    return sorted(str(frame.get("id")) for frame in frames) == sorted(str(request["id"]) for request in requests)


def event_fault(frames: Sequence[Any]) -> str:
    """The problem with the place of an event among these frames; empty when there is none."""
    answered: set[Any] = set()
    known = {frame.get("id") for frame in frames if frame.get("type") == "response"}
    for frame in frames:
        if frame.get("type") == "response":
            answered.add(frame.get("id"))
        elif frame.get("request_id") in answered:
            return f"an event of {frame['request_id']} after its response"
        elif frame.get("request_id") not in known:
            return f"an event of {frame.get('request_id')!r:.60}, which is no open request"
    return ""


# Progress of a request of MCP.


def is_growing(reports: Sequence[Any]) -> bool:
    """Whether each of these notifications reports more progress than the one before."""
    said = [report["params"]["progress"] for report in reports]
    return all(before < after for before, after in pairwise(said))


def is_answered_last(frames: Sequence[Any]) -> bool:
    """Whether no notification comes after the answer."""
    return bool(frames) and "method" not in frames[-1]


_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:.+", re.DOTALL)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_base64(value: Any) -> bool:
    try:
        return decode_base64(value) is not None
    except Undecodable:
        return False


def _is_unique(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return not any(is_equal(item, other) for at, item in enumerate(value) for other in value[:at])


WORDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "$any": ("anything", lambda value: True),
    "$any_string": ("a string", lambda value: isinstance(value, str)),
    "$nonblank": ("a string that is not blank", _is_text),
    "$trimmed": (
        "a string without blanks around it",
        lambda value: _is_text(value) and value == value.strip(),
    ),
    "$any_boolean": ("true or false", lambda value: isinstance(value, bool)),
    "$any_integer": ("an integer", lambda value: is_integer(value)),
    "$any_number": ("a number", lambda value: is_integer(value) or isinstance(value, float)),
    "$count": ("an integer that is not negative", lambda value: is_integer(value) and value >= 0),
    "$any_object": ("an object", lambda value: isinstance(value, dict)),
    "$any_array": ("an array", lambda value: isinstance(value, list)),
    "$nonempty": ("an array that is not empty", lambda value: isinstance(value, list) and bool(value)),
    "$base64": ("base64 with its padding", lambda value: _is_base64(value)),
    "$tool_name": (
        "1 to 128 letters, digits, '_', '-' and '.'",
        lambda value: isinstance(value, str) and _TOOL_NAME.fullmatch(value) is not None,
    ),
    "$uri": ("a URI with a scheme", lambda value: isinstance(value, str) and _URI.fullmatch(value) is not None),
    "$schema": ("a valid JSON Schema", is_schema),
    "$growing": ("progress that increases with each notification", is_growing),
    "$answer_last": ("every notification before the answer", is_answered_last),
    "$unique": ("an array without repeated items", _is_unique),
}
"""For each word, its description and its test."""


SHOWN = 120
"""Characters of a value that a mismatch shows; the whole frame is in the report anyway."""


class Mismatch(msgspec.Struct, frozen=True):
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
    """List the problems of a pattern itself: unknown words, operators with the wrong argument."""
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
        return [] if test(value) else [Mismatch(path, expected, format_value(value))]
    return _match_literal(named[word[1:]], value, path)


def _match_literal(expected: Any, value: Any, path: str) -> list[Mismatch]:
    return [] if is_equal(expected, value) else [Mismatch(path, format_value(expected), format_value(value))]


def _match_object(pattern: dict[str, Any], value: Any, path: str, named: Named) -> list[Mismatch]:
    if not isinstance(value, dict):
        return [Mismatch(path, "an object", format_value(value))]
    found: list[Mismatch] = []
    for key, inner in pattern.items():
        name = key.removesuffix("?")
        where = f"{path}.{name}"
        if inner == ABSENT:
            found += [Mismatch(where, "nothing", format_value(value[name]))] if name in value else []
        elif name in value:
            found += _match(inner, value[name], where, named)
        elif name == key:
            found.append(Mismatch(where, _describe(inner, named), "nothing"))
    return found


def _match_items(pattern: list[Any], value: Any, path: str, named: Named) -> list[Mismatch]:
    if not isinstance(value, list) or len(value) != len(pattern):
        return [Mismatch(path, f"an array of {len(pattern)}", format_value(value))]
    pairs = zip(pattern, value, strict=True)
    return [miss for at, (inner, item) in enumerate(pairs) for miss in _match(inner, item, f"{path}[{at}]", named)]


# Operators: (argument, value, path, named values) → differences.


def _one_of(patterns: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    if any(not _match(pattern, value, path, named) for pattern in patterns):
        return []
    wanted = " or ".join(_describe(pattern, named) for pattern in patterns)
    return [Mismatch(path, wanted, format_value(value))]


def _all_of(patterns: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    return [miss for pattern in patterns for miss in _match(pattern, value, path, named)]


def _each(pattern: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    if not isinstance(value, list):
        return [Mismatch(path, "an array", format_value(value))]
    return [miss for at, item in enumerate(value) for miss in _match(pattern, item, f"{path}[{at}]", named)]


def _subset_of(argument: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    allowed = _values(argument, named)
    if not isinstance(value, list):
        return [Mismatch(path, "an array", format_value(value))]
    expected = f"one of {format_value(allowed)}"
    return [
        Mismatch(f"{path}[{at}]", expected, format_value(item))
        for at, item in enumerate(value)
        if not any(is_equal(item, one) for one in allowed)
    ]


def _superset_of(argument: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    if not isinstance(value, list):
        return [Mismatch(path, "an array", format_value(value))]
    wanted = _values(argument, named)
    missing = [one for one in wanted if not any(is_equal(one, item) for item in value)]
    return [Mismatch(path, f"{format_value(one)} among its items", format_value(value)) for one in missing]


def _among(argument: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    allowed = _values(argument, named)
    fits = any(is_equal(value, one) for one in allowed)
    return [] if fits else [Mismatch(path, f"one of {format_value(allowed)}", format_value(value))]


def _begins_with(argument: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    beginnings = _values(argument, named)
    fits = isinstance(value, str) and value.startswith(tuple(beginnings))
    return (
        []
        if fits
        else [Mismatch(path, f"a text that begins with one of {format_value(beginnings)}", format_value(value))]
    )


def _only(pattern: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    """The object has no keys but those of the pattern."""
    known = {key.removesuffix("?") for key in pattern}
    others = [key for key in value if key not in known] if isinstance(value, dict) else []
    return [
        *_match_object(pattern, value, path, named),
        *(Mismatch(f"{path}.{key}", "nothing", format_value(value[key])) for key in others),
    ]


def _distinct(key: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    """No two objects of the array have the same value under this key."""
    items = [item.get(key) for item in value if isinstance(item, dict)] if isinstance(value, list) else []
    return [
        Mismatch(f"{path}[].{key}", "a value that no other item has", format_value(item))
        for at, item in enumerate(items)
        if any(is_equal(item, earlier) for earlier in items[:at])
    ]


def _between(bounds: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    low, high = bounds
    fits = is_integer(value) and low <= value <= high
    return [] if fits else [Mismatch(path, f"an integer from {low} to {high}", format_value(value))]


def _bytes(bounds: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    low, high = bounds
    fits = isinstance(value, str) and low <= len(value.encode("utf-8", "surrogatepass")) <= high
    return [] if fits else [Mismatch(path, f"a text of {low} to {high} bytes", format_value(value))]


def _topic_among(argument: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    """A topic without wildcards that one of these patterns covers."""
    patterns = _values(argument, named)
    plain = isinstance(value, str) and not {ANY, REST} & set(value.split("."))
    fits = plain and any(matches(pattern, value) for pattern in patterns)
    return [] if fits else [Mismatch(path, f"a topic covered by one of {format_value(patterns)}", format_value(value))]


def _contains(pattern: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    if isinstance(value, list) and any(not _match(pattern, item, path, named) for item in value):
        return []
    if isinstance(value, str) and isinstance(pattern, str) and pattern in value:
        return []
    return [Mismatch(path, f"something with {_describe(pattern, named)}", format_value(value))]


def _decodes_to(pattern: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    """Bytes in base64 which say in JSON or MessagePack what fits."""
    try:
        return _match(pattern, decode_payload(value), f"{path}()", named)
    except Undecodable as reason:
        return [Mismatch(path, "base64 of JSON or MessagePack", f"{format_value(value)}: {reason}")]


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
        return [] if fits(value, other) else [Mismatch(path, f"{words} {format_value(other)}", format_value(value))]

    return operator


def _undamaged(text: Any, value: Any, path: str, named: Named) -> list[Mismatch]:
    """Wherever the first and the last word of `text` come back in one string, all of it must be there.

    A plugin may quote it, as JSON or as a literal of its language; in the message of an error it may do as it likes.
    """
    if isinstance(value, dict) and any(value.get(name) is True for name in ("isError", "is_error")):
        return []
    words = text.split()
    forms = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}
    broken = [
        (where, found)
        for where, found in strings(value, path)
        if words[0] in found and words[-1] in found and not any(form in found for form in forms)
    ]
    return [Mismatch(where, f"{format_value(text)} unchanged", format_value(found)) for where, found in broken]


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
    "$chunks_in_order": _faultless("every chunk after the one before it", chunk_fault),
    "$events_in_time": _faultless("every event before the response to its request", event_fault),
    "$answers_each": _compared("one response to each of", answers_each),
    "$without": _compared("nothing with", lacks),
    "$fits": _compared("what fits the schema", fits_schema),
    "$keeps": _compared("structuredContent that fits the schema", keeps_schema),
    "$apart_from": _compared("an array with no item of", is_apart),
    "$covered_by": _compared("a topic covered by one of", is_covered),
    "$under": _compared("an absolute path under one of", is_under),
    "$includes": _compared("an object with all of", includes),
    "$below": _compared("an integer that is not negative and below", is_below),
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
"""Operators whose argument is not a pattern: whether one fits, and what is needed, in words."""


def _are_two_integers(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_integer, value))


def format_value(value: Any) -> str:
    """A value as JSON, cut to what fits a line."""
    text = json.dumps(value, ensure_ascii=False, default=list)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _describe(pattern: Any, named: Named) -> str:
    if isinstance(pattern, str) and pattern in WORDS:
        return WORDS[pattern][0]
    if isinstance(pattern, str) and pattern.startswith("$") and pattern[1:] in named:
        return format_value(named[pattern[1:]])
    return format_value(pattern)
