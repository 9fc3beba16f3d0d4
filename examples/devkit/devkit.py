"""A package of vai with one export of each kind, for work on a code base.

    diff_stat       tool        what a diff changes, counted
    run_webhook     hook        tells a URL of every run that ends, signed
    coding_window   compactor   the task, the end of the conversation, and one line for what lay between
    release_notes   harness     notes from the subjects of commits, section by section

`vai-plugin.toml`, `schemas/` and `bin/plugin` are written from what is declared here, by `write_vai`.
"""

import hashlib
import hmac
import json
import re
import sys
from typing import Any

from plugbay.sdk import Context, HarnessResult, Plugin, Run, Seed, ToolError, ToolResult, ToolUnavailable

plugin = Plugin(
    "example/devkit", version="1.0.0", name="Dev Kit", description="Four small helpers for work on a code base."
)

Block = dict[str, Any]


# A tool.

DIFF = {
    "type": "object",
    "required": ["diff"],
    "properties": {"diff": {"type": "string", "minLength": 1}},
    "additionalProperties": False,
    "examples": [{"diff": "--- a/tea.txt\n+++ b/tea.txt\n@@ -1 +1,2 @@\n-milk\n+lemon\n+sugar\n"}],
}
COUNTS: dict[str, Any] = {"added": {"type": "integer"}, "removed": {"type": "integer"}}
STAT = {
    "type": "object",
    "required": ["files", "added", "removed"],
    "properties": {
        "files": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "added", "removed"],
                "properties": {"path": {"type": "string"}, **COUNTS},
            },
        },
        **COUNTS,
    },
}
HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


@plugin.tool(input_schema=DIFF, output_schema=STAT, effect="read_only", timeout=10)
def diff_stat(diff: str) -> ToolResult:
    """Count what a unified diff adds and removes, file by file."""
    files: list[dict[str, Any]] = []
    before, old, new = "", 0, 0
    for line in diff.splitlines():
        hunk = HUNK.match(line)
        if old > 0 or new > 0:
            files[-1]["added"] += line.startswith("+")
            files[-1]["removed"] += line.startswith("-")
            old -= not line.startswith(("+", "\\"))
            new -= not line.startswith(("-", "\\"))
        elif line.startswith("--- "):
            before = named(line)
        elif line.startswith("+++ "):
            files.append({"path": named(line) or before, "added": 0, "removed": 0})
        elif hunk and files:
            old, new = (int(count or 1) for count in hunk.groups())
    if not files:
        return ToolResult("This is not a unified diff: no line begins with '+++ '.", is_error=True)
    added, removed = (sum(file[key] for file in files) for key in ("added", "removed"))
    text = f"{len(files)} file{'s' * (len(files) > 1)} changed, {added} lines added, {removed} removed"
    return ToolResult(text, {"files": files, "added": added, "removed": removed})


def named(line: str) -> str:
    """The path in a line such as `+++ b/src/app.py`; none for `/dev/null`."""
    path = line[4:].partition("\t")[0].strip()
    return "" if path == "/dev/null" else path.removeprefix("a/" if line.startswith("-") else "b/")


# A hook.

TARGET = {
    "type": "object",
    "properties": {"url": {"type": "string", "pattern": "^https?://"}},
    "additionalProperties": False,
}
LONGEST_POST = 10.0
"""Seconds: a receiver that takes longer is told again later."""


@plugin.hook(
    "run.completed",
    "chain.compacted",
    export="run_webhook",
    config_schema=TARGET,
    capabilities=["network", "secret=webhook_key"],
)
def run_webhook(event: dict[str, Any], ctx: Context) -> None:
    """Post every event to a URL, with a signature that its receiver can check."""
    url = ctx.config.get("url")
    if url is None:
        print(f"no url is configured: nobody is told of {event['type']}", file=sys.stderr)
        return
    body = json.dumps({"delivery_id": ctx.delivery_id, "attempt": ctx.attempt, "event": event}).encode()
    headers = {"Content-Type": "application/json", "X-Delivery": ctx.delivery_id or ""}
    if "webhook_key" in ctx.secrets:
        signature = hmac.new(ctx.secrets["webhook_key"].encode(), body, hashlib.sha256)
        headers["X-Signature"] = f"sha256={signature.hexdigest()}"
    post(url, body, headers, LONGEST_POST if ctx.remaining is None else min(ctx.remaining, LONGEST_POST))


def post(url: str, body: bytes, headers: dict[str, str], seconds: float) -> None:
    """Send it. What the receiver refuses is refused for good; what it cannot do now is told again."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    try:
        with urlopen(Request(url, body, headers, method="POST"), timeout=seconds):
            return
    except HTTPError as error:
        error.close()
        if error.code < 500:
            raise ToolError(f"the receiver answered with {error.code}", code="webhook.refused") from None
        raise ToolUnavailable(f"the receiver answered with {error.code}") from None
    except OSError as error:
        raise ToolUnavailable(f"the receiver cannot be reached: {getattr(error, 'reason', error)}") from None


# A compactor.

PAIR = ("tool_call", "tool_result")


@plugin.compactor(
    export="coding_window",
    target_context="coding",
    supports_pinned_items=True,
    capabilities=["filesystem=scratch"],  # a long conversation comes as a file
)
def coding_window(blocks: list[Block], ctx: Context) -> Seed | None:
    """Keep the task and as much of the end as fits, and say in one line what is gone."""
    job = ctx.compaction
    if job is None:
        return None
    budget = job.max_tokens or sys.maxsize
    if tokens([*blocks, *job.pinned]) <= budget:
        return Seed(blocks, "Nothing had to go.")
    kept = [block for block in blocks if block["kind"] == "system"]
    kept += [block for block in job.pinned if block not in kept]
    task = next((block for block in blocks if block["kind"] == "input"), None)
    kept += [task] if task is not None and task not in kept else []
    rest = [block for block in blocks if block not in kept]
    room, start = budget - tokens([*kept, gone(rest)]), len(rest)
    if room < 0:
        raise ToolError("what has to stay is too long already", code="compactor.no_room")
    while start > 0 and tokens(rest[start - 1 : start]) <= room:
        start -= 1
        room -= tokens(rest[start : start + 1])
    while not whole(rest[start:]):
        start += 1
    return Seed([*kept, gone(rest[:start]), *rest[start:]], f"{start} of {len(blocks)} blocks are gone.")


def tokens(blocks: list[Block]) -> int:
    """As the host counts: four bytes of JSON are one."""
    return sum(-(-len(json.dumps(block, ensure_ascii=False, separators=(",", ":")).encode()) // 4) for block in blocks)


def whole(blocks: list[Block]) -> bool:
    """Whether every result of a tool has its call."""
    ids = {kind: {block.get("tool_call_id") for block in blocks if block["kind"] == kind} for kind in PAIR}
    return ids["tool_result"] <= ids["tool_call"]


def gone(blocks: list[Block]) -> Block:
    """One line for many blocks: how many there were, and which tools were used."""
    tools = ", ".join(dict.fromkeys(block["name"] for block in blocks if block["kind"] == "tool_call"))
    text = f"[{len(blocks)} earlier blocks left out{f'; tools used: {tools}' if tools else ''}]"
    return {"kind": "input", "content": [{"type": "text", "text": text}]}


# A harness.

SECTIONS = {"feat": "Added", "fix": "Fixed", "perf": "Faster", "docs": "Documented"}
SUBJECT = re.compile(r"(?:[-*] )?(?:(\w+)(?:\([^)]*\))?!?: )?(.+)")


@plugin.harness(
    "release_notes",
    supports=["continue"],
    max_concurrency=4,
    timeout=300,
    capabilities=["network", "filesystem=scratch", "scope=chains:write"],
)
def release_notes(run: Run, ctx: Context) -> HarnessResult:
    """Sort the subjects of commits into sections, and leave the notes as a file."""
    subjects = [found.groups() for line in run.text.splitlines() if (found := SUBJECT.fullmatch(line.strip()))]
    notes: dict[str, list[str]] = dict(run.checkpoint or {})
    for kind, title in {**SECTIONS, "": "Changed"}.items():
        if title in notes:
            continue  # done before the break
        ctx.check_cancelled()
        notes[title] = [text for said, text in subjects if (said if said in SECTIONS else "") == kind]
        ctx.progress(f"{title}: {len(notes[title])}")
        ctx.checkpoint(notes)
    text = "\n".join(f"## {title}\n\n{bullets(lines)}" for title, lines in notes.items() if lines)
    if ctx.gateway is not None and ctx.chain_id is not None:
        ctx.gateway.patch(f"/v1/chains/{ctx.chain_id}", {"metadata": {"release_notes": text}})
    files = []
    if ctx.scratch is not None:
        files = [ctx.scratch / "release-notes.md"]
        files[0].write_text(text, encoding="utf-8")
    return HarnessResult(f"{len(subjects)} changes in {sum(map(bool, notes.values()))} sections.", artifacts=files)


def bullets(lines: list[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)


if __name__ == "__main__":
    plugin.run()
