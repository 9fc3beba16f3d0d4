"""Plain questions about values, of which operators of patterns are made.

Owns what a topic, a path, a payload, a series of chunks and one of frames are compared by. Pure. Refuses to know
patterns.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

import msgspec

from plugbay.contracts.schemas import compile_schema, schema_problem


class Undecodable(Exception):
    """A payload that is nothing we can read."""


# Topics and paths.


def topic_matches(pattern: str, topic: str) -> bool:
    """Dotted names: `*` stands for one segment, a last `>` for one or more. The topic itself may have neither."""
    wanted, segments = pattern.split("."), topic.split(".")
    if any(segment in ("", "*", ">") for segment in segments):
        return False
    if wanted[-1] == ">":
        wanted.pop()
        segments = segments[: len(wanted)] if len(segments) > len(wanted) else []
    return len(wanted) == len(segments) and all(map(_segment_fits, wanted, segments))


def _segment_fits(wanted: str, segment: str) -> bool:
    return wanted in ("*", segment)


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


def same(one: Any, other: Any) -> bool:
    """Equality as JSON has it: `1` equals `1.0`, and neither equals `true`."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
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
        item = _unfolded(item)
        if isinstance(item, str):
            found.append((where, item))
        elif isinstance(item, dict):
            todo += [(f"{where}.{key}", inner) for key, inner in item.items()]
        elif isinstance(item, list):
            todo += [(f"{where}[{at}]", inner) for at, inner in enumerate(item)]
    return found


def _unfolded(item: Any) -> Any:
    """What a text says in JSON, where it does: escapes in it are not the author's."""
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
    return isinstance(items, list) and not any(same(item, other) for item in items for other in others)


def is_below(value: Any, end: int) -> bool:
    return is_integer(value) and 0 <= value < end


def unbase64(text: Any) -> bytes:
    """The bytes of a text in base64 with its padding; raises `Undecodable`."""
    try:
        if isinstance(text, str):
            return binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError:
        pass
    raise Undecodable("not base64")


def decoded(text: Any) -> Any:
    """What a payload in base64 says in JSON or MessagePack; raises `Undecodable`."""
    data = unbase64(text)
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
    """What is wrong with the order of these publishes, all of which are chunks; empty when nothing is.

    Of each topic, a publish begins with chunk 0 and goes on one by one, with one `published_ns`, up to the chunk that
    is final. It may begin anew at any time, but not end without an end.
    """
    open_chunks: dict[str, tuple[int, Any] | None] = {}
    for message in publishes:
        topic, chunk = message["params"]["topic"], decoded(message["params"]["payload"])
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
    """What is wrong with the place of an event among these frames; empty when nothing is."""
    answered: set[Any] = set()
    known = {frame.get("id") for frame in frames if frame.get("type") == "response"}
    for frame in frames:
        if frame.get("type") == "response":
            answered.add(frame.get("id"))
        elif frame.get("request_id") in answered:
            return f"an event of {frame['request_id']} after its response"
        elif frame.get("request_id") not in known:
            return f"an event of {frame.get('request_id')!r:.60}, which nobody asked"
    return ""


# Progress of a request of MCP.


def is_growing(reports: Sequence[Any]) -> bool:
    """Whether each of these notifications says more progress than the one before."""
    said = [report["params"]["progress"] for report in reports]
    return all(before < after for before, after in pairwise(said))


def is_answered_last(frames: Sequence[Any]) -> bool:
    """Whether no notification comes after the answer."""
    return bool(frames) and "method" not in frames[-1]
