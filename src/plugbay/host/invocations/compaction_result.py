"""Checks the result of a compactor: the seed blocks that a new chain would begin with.

Pure. The host computes its own token estimate, and a seed that breaks a rule makes no chain. The host repairs one thing
itself: it appends pinned items for a compactor that does not support them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

KINDS = frozenset("input response system thinking tool_call tool_result".split())
"""Kinds of blocks a chain has."""

BYTES_PER_TOKEN = 4
"""Average of English text and code; other scripts need more tokens, and more bytes as well."""

MAX_VIOLATIONS = 12
"""Violations named in a failure; more would not help a reader."""


def token_estimate(blocks: Sequence[Any]) -> int:
    """The host's estimate for these blocks, from their JSON: a model reads the structure around a text too."""
    return sum(-(-len(msgspec.json.encode(block)) // BYTES_PER_TOKEN) for block in blocks)


def with_pinned(blocks: Sequence[Any], pinned: Sequence[Any]) -> list[Any]:
    """The blocks, and after them every pinned item that is not among them."""
    return [*blocks, *(item for item in pinned if item not in blocks)]


def lost_pins(blocks: Sequence[Any], pinned: Sequence[Any]) -> list[str]:
    """The pinned items that a seed lacks, for a compactor whose manifest says that it keeps them."""
    return [
        f"pinned item {at} is missing, and its manifest says supports_pinned_items"
        for at, item in enumerate(pinned)
        if item not in blocks
    ][:MAX_VIOLATIONS]


def violations(result: Any, request: Mapping[str, Any], blocks: Sequence[Any], source: Sequence[Any]) -> list[str]:
    """The rules that a seed breaks. `blocks` are its own and the pinned items, `source` the blocks they replace."""
    if not isinstance(result, Mapping) or not isinstance(result.get("seed_blocks"), list) or not result["seed_blocks"]:
        return ["seed_blocks must be a list with at least one block"]
    found = [f"seed_blocks[{at}] {why}" for at, block in enumerate(blocks) if (why := _block_problem(block))]
    if found:
        return found[:MAX_VIOLATIONS]
    found = _pairing_problems(blocks)
    retain = request.get("policy") or {}
    if retain.get("retain_system"):
        found += _system_problems(blocks, source)
    limit = (request.get("target") or {}).get("max_input_tokens")
    size = token_estimate(blocks)
    if limit is not None and size > limit:
        found.append(f"it has about {size:,} tokens by the host's estimate; the target has room for {limit:,}")
    return found[:MAX_VIOLATIONS]


def _block_problem(block: Any) -> str | None:
    if not isinstance(block, Mapping):
        return "must be an object"
    kind = block.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        return f"has the kind {kind!r:.60}, which chains do not have"
    content = block.get("content", [] if kind == "tool_call" else None)
    if not isinstance(content, list) or not all(_is_content(item) for item in content):
        return "must have content: a list of objects with a type"
    if kind in ("tool_call", "tool_result") and not _is_text(block.get("tool_call_id")):
        return "must have a tool_call_id"
    return "must have a name" if kind == "tool_call" and not _is_text(block.get("name")) else None


def _pairing_problems(blocks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every tool call has one result after it, and every result a call before it."""
    waiting: Counter[str] = Counter()
    seen: set[str] = set()
    found = []
    for block in blocks:
        if block["kind"] not in ("tool_call", "tool_result"):
            continue
        id = block["tool_call_id"]
        if block["kind"] == "tool_call":
            if id in seen:
                found.append(f"the tool_call {id!r:.60} appears twice")
            seen.add(id)
            waiting[id] += 1
        elif waiting[id] == 0:
            found.append(f"the tool_result of {id!r:.60} has no call before it")
        else:
            waiting[id] -= 1
    return found + [f"the tool_call {id!r:.60} has no result" for id, count in waiting.items() if count > 0]


def _system_problems(blocks: Sequence[Mapping[str, Any]], source: Sequence[Any]) -> list[str]:
    """Every system block of the source is there with its content, the first one first; ids are the old chain's."""
    of_source, of_seed = _system_contents(source), _system_contents(blocks)
    found = []
    if of_source and (blocks[0]["kind"] != "system" or blocks[0]["content"] != of_source[0]):
        found.append("the first block must be the system block of the source")
    lost = [at for at, content in enumerate(of_source) if content not in of_seed]
    return found + [f"system block {at} of the source was replaced or dropped; it must stay" for at in lost]


def _system_contents(blocks: Sequence[Any]) -> list[Any]:
    of_system = [block for block in blocks if isinstance(block, Mapping) and block.get("kind") == "system"]
    return [block.get("content") for block in of_system]


def _is_content(item: Any) -> bool:
    return isinstance(item, Mapping) and _is_text(item.get("type"))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""
