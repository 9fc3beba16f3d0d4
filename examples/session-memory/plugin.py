"""Notes that outlive a session, in the host's storage: injected at the start of each session, and searched by words.

Three tools for the agent, and three hooks that work without it: a new session gets the newest notes, and a line such as
"Remember: the gate code is 4711" is saved when a session is idle or a part of it is compacted.
"""

import os
import re
import time

from plugbay.sdk import Plugin, ToolError, inject

LONGEST_NOTE = 2_000
"""Characters of one note: it is a sentence or two, and many of them must fit the start of a session."""

MOST_NOTES = 500
"""Maximum number of notes; one more removes the oldest."""

NOTE = "note/"
"""Prefix of the key of each note. The time follows, so keys sort by age."""

ASKED = re.compile(r"\bremember(?: that|:)\s+([^\n\"\\]+)", re.IGNORECASE)
"""How people ask in passing. It ends at quotes and backslashes: compacted messages come as the text of their JSON."""

CONFIG = {
    "type": "object",
    "properties": {
        "told": {"type": "integer", "minimum": 0, "maximum": 100, "default": 5},
        "listen": {"type": "boolean", "default": True},
        "match": {"enum": ["any", "all"], "default": "any"},
        "heading": {"type": "string", "minLength": 1, "maxLength": 80, "default": "What you remember:"},
    },
    "additionalProperties": False,
}

plugin = Plugin(
    "session-memory",
    version="1.0.0",
    description="Notes that outlive a session, kept in the host's storage.",
    capabilities=["kaged:storage:read", "kaged:storage:write", "net:[]"],
    config_schema=CONFIG,
)

plugin.knob(
    "told",
    type="int_range",
    label="Notes told",
    description="How many of the newest notes a new session is told; 0 for none.",
    binds_to="config.told",
    default=5,
    min=0,
    max=20,
    step=1,
)
plugin.knob(
    "listen",
    type="boolean",
    label="Listen",
    description="Keep what people ask to remember in passing.",
    binds_to="config.listen",
    default=True,
)
plugin.knob(
    "match",
    type="enum",
    label="Words that must match",
    binds_to="config.match",
    default="any",
    values=["any", "all"],
    labels={"any": "Any of them", "all": "All of them"},
)
plugin.knob(
    "heading", type="text", label="Heading", binds_to="config.heading", default="What you remember:", max_length=80
)

REMEMBER = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": 1, "maxLength": LONGEST_NOTE}},
    "required": ["text"],
    "additionalProperties": False,
    "examples": [{"text": "Ada drinks tea without milk."}],
}
RECALL = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "minimum": 1, "maximum": 100}},
    "required": ["query"],
    "additionalProperties": False,
    "examples": [{"query": "What does Ada drink?"}],
}
FORGET = {
    "type": "object",
    "properties": {"id": {"type": "string", "pattern": "^[0-9a-f]{1,32}$"}},
    "required": ["id"],
    "additionalProperties": False,
    "examples": [{"id": "0"}],
}


@plugin.tool(description="Keep a note for later sessions.", input_schema=REMEMBER)
def remember(text: str, ctx) -> dict:
    if not text.strip():
        raise ToolError("there is nothing to remember", code="invalid_input")
    return {"id": keep(text, ctx)}


@plugin.tool(description="Find notes by their words, the best first.", input_schema=RECALL)
def recall(query: str, ctx, limit: int = 10) -> dict:
    wanted = words(query)
    least = len(wanted) if ctx.config.get("match") == "all" else 1
    found = [(len(wanted & words(note["text"])), note) for note in notes(ctx)]
    found.sort(key=lambda hit: (hit[0], hit[1]["id"]), reverse=True)
    return {"notes": [note for hits, note in found if hits >= max(least, 1)][:limit]}


@plugin.tool(description="Forget a note.", input_schema=FORGET)
def forget(id: str, ctx) -> dict:
    return {"forgotten": ctx.storage.delete(NOTE + id)}


@plugin.hook("on_session_start")
def tell(event: dict, ctx):
    newest = notes(ctx, ctx.config.get("told", 5))
    return inject(listing(newest, ctx)) if newest else None


@plugin.hook("on_session_idle")
def overhear(event: dict, ctx):
    listen(event.get("transcript", ""), ctx)


@plugin.hook("post_compact")
def rescue(event: dict, ctx):
    """Save requested notes from compacted messages, and inject them into the conversation."""
    saved = listen(event.get("messages_being_compacted", ""), ctx)
    return inject(listing(saved, ctx)) if saved else None


def listen(text: str, ctx) -> list[dict]:
    """Save the notes that a text requests, unless they exist."""
    if not ctx.config.get("listen", True):
        return []
    known = {note["text"] for note in notes(ctx)}
    asked = [match.strip()[:LONGEST_NOTE] for match in ASKED.findall(text)]
    new = [text for text in dict.fromkeys(asked) if text and text not in known]
    return [{"id": keep(text, ctx), "text": text} for text in new]


def keep(text: str, ctx) -> str:
    """A note under the time in microseconds, with two random bytes against a collision."""
    keys = ctx.storage.keys(NOTE)
    for oldest in keys[: max(len(keys) + 1 - MOST_NOTES, 0)]:
        ctx.storage.delete(oldest)
    id = f"{time.time_ns() // 1000:014x}{os.urandom(2).hex()}"
    ctx.storage.set(NOTE + id, {"text": text.strip()})
    return id


def notes(ctx, newest: int | None = None) -> list[dict]:
    """Every note, oldest first, or only the newest."""
    keys = ctx.storage.keys(NOTE)
    if newest is not None:
        keys = keys[max(len(keys) - newest, 0) :]
    return [{"id": key.removeprefix(NOTE), **stored} for key in keys if (stored := ctx.storage.get(key))]


def listing(found: list[dict], ctx) -> str:
    heading = ctx.config.get("heading", "What you remember:")
    return "\n".join([heading, *(f"- {note['text']}" for note in found)])


def words(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", text.casefold()) if len(word) > 2}


if __name__ == "__main__":
    plugin.run()
