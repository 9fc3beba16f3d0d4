"""Vai packages for tests: a folder with a manifest and a child in plain Python, no SDK. A test writes what is special.

The body may define `tool(body, m)`, `hook(body, m)`, `compactor(body, m)` and `harness(body, m)`, each called in a
thread of its own, replace `hello(m)`, `cancelled(m)` and `shutdown(m)`, and say things with `send`, `raw`, `event`,
`succeed`, `end` and `refuse`. `cancels[id]` is set when the request of that id is cancelled.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.openings import FLAG, OPENING

_CHILD = """#!{python} {flag}
{opening}
PACKAGE = {package!r}
VERSION = {version!r}
P = "vai.rpc.v1"
cancels = {{}}
_lock = threading.Lock()

def raw(data):
    with _lock:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

def send(**message):
    body = json.dumps({{"protocol": P, **message}}, ensure_ascii=False).encode()
    raw(b"Content-Length: %d\\r\\n\\r\\n%b" % (len(body), body))

def respond(m, **body):
    send(type="response", id=m["id"], ok=True, body=body)

def succeed(m, result):
    respond(m, status="succeeded", result=result)

def end(m, status, code="acme.error", message="no", **more):
    respond(m, status=status, error={{"code": code, "message": message}}, **more)

def refuse(m, code, message="no"):
    send(type="response", id=m["id"], ok=False, error={{"code": code, "message": message}})

def event(m, **event):
    send(type="event", request_id=m["id"], event={{"type": "progress", **event}})

def output(value, **more):
    text = [{{"type": "text", "text": "done"}}]
    return {{"content": text, "structured_output": value, "is_error": False, "retryable": False, **more}}

def hello(m):
    send(type="hello", role="plugin", plugin={{"package_id": PACKAGE, "version": VERSION}})

def tool(body, m):
    succeed(m, output({{"input": body["input"], "pid": os.getpid()}}))

def hook(body, m):
    respond(m, status="ack")

def compactor(body, m):
    succeed(m, {{"seed_blocks": body["source"]["projection"]["blocks"], "summary": {{"text": "short"}}}})

def harness(body, m):
    succeed(m, {{"checkpoint": {{"kind": "checkpoint", "data": {{}}}}, "summary": {{"text": "done"}}, "artifacts": []}})

def cancelled(m):
    end(m, "cancelled")

def shutdown(m):
    os._exit(0)

{body}

_OPS = {{"tool.invoke": "tool", "hook.handle": "hook", "compactor.compact": "compactor", "harness.run": "harness"}}

def _read():
    size = 0
    while (line := sys.stdin.buffer.readline()) not in (b"\\r\\n", b""):
        size = int(line.partition(b":")[2])
    return json.loads(sys.stdin.buffer.read(size)) if line else None

requests = {{}}
while (m := _read()) is not None:
    if m["type"] == "hello":
        hello(m)
    elif m["type"] == "request":
        cancels[m["id"]] = threading.Event()
        requests[m["id"]] = m
        serve = globals()[_OPS[m["op"]]]
        threading.Thread(target=serve, args=(m["body"], m), daemon=True).start()
    elif m["type"] == "cancel":
        cancels[m["request_id"]].set()
        cancelled({{**m, "id": m["request_id"]}})
    elif m["type"] == "shutdown":
        shutdown(m)
"""

_USUAL: dict[str, dict[str, Any]] = {
    "tool": {"effect_class": "read_only", "input_schema": "schemas/any.json"},
    "hook": {"subscribes_to": ["run.completed"]},
    "compactor": {"target_context": "coding", "supports_pinned_items": True},
    "harness": {"mode": "composite", "fidelity": "checkpoint", "supports": []},
}

LEFT = {"content": [{"type": "text", "text": "3 of 4 rows were written"}], "structured_output": {"rows": 3}}

FAILS = f"""
def tool(body, m):
    end(m, "failed", "acme.half", "the disk is full", result={LEFT})
"""
"""The body of a plugin whose tool fails and answers with a result all the same."""


def export(id: str = "t", kind: str = "tool", **fields: Any) -> dict[str, Any]:
    """One export; `own` adds to the table of its kind, everything else to the export itself."""
    own = {**_USUAL[kind], **fields.pop("own", {})}
    return {"id": id, "kind": kind, "display_name": id, "default_timeout_ms": 20_000, **fields, kind: own}


def write_vai_plugin(
    folder: Path,
    body: str = "",
    exports: Sequence[dict[str, Any]] | None = None,
    *,
    package: str = "acme/p",
    version: str = "1.0.0",
    schemas: dict[str, Any] | None = None,
    **manifest: Any,
) -> Path:
    """A package in a folder of its own below `folder`, with a tool `t`; `manifest` replaces or adds top-level keys."""
    root = folder / package.replace("/", "-")
    for part in ("bin", "schemas"):
        (root / part).mkdir(parents=True, exist_ok=True)
    for name, schema in {"any": {"type": "object"}, **(schemas or {})}.items():
        (root / "schemas" / f"{name}.json").write_text(json.dumps(schema))
    whole = {
        "api_version": "vai.plugin.v1",
        "package_id": package,
        "version": version,
        "name": "A test",
        "runtime": {
            "protocol": "vai.rpc.v1",
            "transport": "stdio",
            "entrypoint": ["./bin/plugin"],
            "os": ["linux", "darwin"],
            "arch": ["amd64", "arm64"],
        },
        "exports": list(exports or [export()]),
        **manifest,
    }
    (root / "vai-plugin.toml").write_text("".join(f"{key} = {_toml(value)}\n" for key, value in whole.items()))
    program = root / "bin" / "plugin"
    source = _CHILD.format(
        python=sys.executable,
        flag=FLAG,
        opening=OPENING,
        package=package,
        version=version,
        body=textwrap.dedent(body),
    )
    program.write_text(source)
    program.chmod(0o755)
    return root


def _toml(value: Any) -> str:
    """Tables in one line, so that they can stand anywhere; everything else looks as in JSON."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)
