"""Thread Weave: recent work stays as it was said; older work becomes one short note for each thread of it.

A thread begins with an input and ends before the next one: a task, the steps taken, what came of it. The newest threads
are kept whole, as many as fit. Each older one is woven into a note that says what was asked, which tools were used and
what was answered, and where that stands in the source: chain, blocks, a hash of them and the note before it. Whoever
needs a detail finds it there. Notes get shorter the older they are, and the oldest share one, until all fits.

`vai-plugin.toml`, `schemas/` and `bin/plugin` are written from what is declared here, by `write_vai`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

from plugbay.sdk import Context, Plugin, Seed, ToolError

plugin = Plugin(
    "plugbay/thread-weave",
    version="1.0.1",
    name="Thread Weave",
    description="Keeps recent coding context as it is, and weaves older task history into notes that lead back to it.",
)

Block = dict[str, Any]
Thread = list[Block]

RECENT_SHARE = 0.6
"""Of the room that is left beside what must stay: for threads that are kept whole, unless the config says otherwise."""

DETAIL = 280
"""Characters of a task, and of its outcome, in the longest form of a note."""

SHORT = 80
"""Characters of the task in the short form, which is all it has."""

SETTINGS = {
    "type": "object",
    "properties": {
        "recent_share": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "How much of the room recent threads may fill before older ones get any.",
        },
        "detail": {
            "type": "integer",
            "minimum": 40,
            "maximum": 4000,
            "description": "Characters of a task, and of its outcome, in a note.",
        },
    },
    "additionalProperties": False,
}


@plugin.compactor(
    export="thread_weave",
    target_context="coding",
    supports_pinned_items=True,
    config_schema=SETTINGS,
    timeout=120,
    max_concurrency=4,
    capabilities=["filesystem=scratch"],  # a long conversation comes as a file
)
def thread_weave(blocks: list[Block], ctx: Context) -> Seed | None:
    """Keep recent coding context directly, and emit lineage-linked seed blocks for older task history."""
    job = ctx.compaction
    if job is None:
        return None
    budget = job.max_tokens or sys.maxsize
    if tokens([*blocks, *missing(job.pinned, blocks)]) <= budget:
        return Seed(blocks, "Everything fits as it is.")
    fixed = [block for block in blocks if block["kind"] == "system"]
    pinned = missing(job.pinned, fixed)
    threads = woven_from([block for block in blocks if block["kind"] != "system" and block not in pinned])
    room = budget - tokens([*fixed, *pinned])
    if room < 0:
        raise ToolError("what has to stay is longer than the target already", code="compactor.no_room")
    share = float(ctx.config.get("recent_share", RECENT_SHARE))
    recent, notes = newest(threads, room, share), None
    while notes is None:
        older = threads[: len(threads) - len(recent)]
        left = room - tokens([block for thread in recent for block in thread])
        notes = weave(older, left, str(job.chain_id or "this chain"), int(ctx.config.get("detail", DETAIL)))
        if notes is None and len(recent) < 2:
            raise ToolError("there is no room for what came before", code="compactor.no_room")
        recent = recent[1:] if notes is None else recent
    ctx.progress(f"{len(recent)} threads kept, {len(older)} woven into {len(notes)} notes")
    kept = [block for thread in recent for block in thread]
    return Seed([*fixed, *pinned, *notes, *kept], told(len(threads), len(recent), older))


def woven_from(blocks: list[Block]) -> list[Thread]:
    """The conversation in threads. A call and its result are never in two of them."""
    threads: list[Thread] = []
    open_calls: set[str] = set()
    for block in blocks:
        if not threads or (block["kind"] == "input" and not open_calls):
            threads.append([])
        threads[-1].append(block)
        if block["kind"] == "tool_call":
            open_calls.add(block["tool_call_id"])
        elif block["kind"] == "tool_result":
            open_calls.discard(block["tool_call_id"])
    return threads


def newest(threads: list[Thread], room: int, share: float) -> list[Thread]:
    """The last threads that fit into their share of the room; the very last one may have all of it."""
    kept: list[Thread] = []
    used = 0
    for thread in reversed(threads):
        size = tokens(thread)
        if used + size > (room if not kept else room * share):
            break
        kept.insert(0, thread)
        used += size
    return kept


def weave(threads: list[Thread], room: int, chain: str, detail: int) -> list[Block] | None:
    """A note for each thread, as long as there is room for; the oldest share one note when there is not. None: there
    is no room even for that.
    """
    if not threads:
        return []
    return next((notes for notes in forms(threads, chain, detail) if tokens(notes) <= room), None)


def forms(threads: list[Thread], chain: str, detail: int) -> Iterator[list[Block]]:
    """The same history in fewer and fewer words."""
    count = len(threads)
    links = [link(thread, chain) for thread in threads]
    full = [note(threads, links, at, detail) for at in range(count)]
    brief = [note(threads, links, at, SHORT, brief=True) for at in range(count)]
    yield full
    step = max(1, count // 8)
    for shortened in range(step, count, step):
        yield [*brief[:shortened], *full[shortened:]]
    yield brief
    for merged in range(2, count, step):
        yield [gathered(threads[:merged], links[:merged]), *brief[merged:]]
    yield [gathered(threads, links)]


def note(threads: list[Thread], links: list[str], at: int, detail: int, *, brief: bool = False) -> Block:
    """What one thread was about, and where it stands."""
    thread = threads[at]
    after = f"; after {digest(threads[at - 1])}" if at else ""
    lines = [
        f"[Earlier thread {at + 1} of {len(threads)}: {links[at]}{after}]",
        f"Task: {shortened(first(thread), detail)}",
    ]
    if not brief:
        used = tools(thread)
        lines += [f"Tools: {used}"] if used else []
        outcome = last(thread)
        lines += [f"Outcome: {shortened(outcome, detail)}"] if outcome else []
    return text_block("\n".join(lines))


def gathered(threads: list[Thread], links: list[str]) -> Block:
    """One note for many threads."""
    blocks = [block for thread in threads for block in thread]
    used = tools(blocks)
    text = f"[{len(threads)} earlier threads: from {links[0]} to {links[-1]}{f'; tools: {used}' if used else ''}]"
    return text_block(text)


def link(thread: Thread, chain: str) -> str:
    """Where a thread stands in its source, and a hash by which it is known there."""
    names = [str(block["id"]) for block in (thread[0], thread[-1]) if "id" in block]
    place = "…".join(dict.fromkeys(names)) or f"{len(thread)} blocks"
    return f"{chain} {place} {digest(thread)}"


def digest(thread: Thread) -> str:
    data = json.dumps(thread, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    return f"sha256:{hashlib.sha256(data).hexdigest()[:12]}"


def first(thread: Thread) -> str:
    """What was asked."""
    return next((text for block in thread if (text := text_of(block))), "(no words)")


def last(thread: Thread) -> str:
    """What was answered in the end."""
    return next((text for block in reversed(thread) if block["kind"] == "response" and (text := text_of(block))), "")


def tools(blocks: list[Block]) -> str:
    """Which tools were used, how often, and how many of them failed."""
    names = [str(block.get("name")) for block in blocks if block["kind"] == "tool_call"]
    failed = sum(bool(block.get("is_error")) for block in blocks if block["kind"] == "tool_result")
    used = ", ".join(f"{name} x{names.count(name)}" for name in dict.fromkeys(names))
    return f"{used} ({failed} failed)" if failed else used


def text_of(block: Block) -> str:
    parts = [item.get("text", "") for item in block.get("content") or [] if item.get("type") == "text"]
    return " ".join(" ".join(parts).split())


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def text_block(text: str) -> Block:
    return {"kind": "input", "content": [{"type": "text", "text": text}]}


def missing(pinned: list[Block], blocks: list[Block]) -> list[Block]:
    """What is pinned and not yet there."""
    return [item for item in pinned if item not in blocks]


def tokens(blocks: list[Block]) -> int:
    """As the host counts: four bytes of JSON are one."""
    return sum(-(-len(json.dumps(block, ensure_ascii=False, separators=(",", ":")).encode()) // 4) for block in blocks)


def told(all_threads: int, kept: int, older: list[Thread]) -> str:
    tasks = "; ".join(shortened(first(thread), SHORT) for thread in older[-3:])
    return f"{kept} of {all_threads} threads are kept as they were. Before them: {tasks or 'nothing'}."


if __name__ == "__main__":
    plugin.run()
