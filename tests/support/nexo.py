"""Nexo plugins for tests: a folder with a manifest and a child in plain Python, no SDK. A test writes what is special.

The body may define functions named like methods with `_` for `.` (`tool_invoke(m)`, `llm_chat(m)`, …), replace
`initialize` and `shutdown`, and say things on its own with `send`, `reply`, `fail`, `notify` and `request`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path

from tests.support.openings import FLAG, OPENING

_CHILD = """
{opening}
ID = {id!r}
TOOLS = {tools!r}

def send(**message):
    sys.stdout.write(json.dumps({{"jsonrpc": "2.0", **message}}) + "\\n")
    sys.stdout.flush()

def reply(m, result):
    send(id=m["id"], result=result)

def fail(m, code, message, **data):
    send(id=m["id"], error={{"code": code, "message": message, **({{"data": data}} if data else {{}})}})

def notify(method, **params):
    send(method=method, params=params)

def request(id, method, **params):
    send(id=id, method=method, params=params)

def publish(topic, **payload):
    notify("broker.publish", topic=topic, event={{"topic": topic, "source": ID, "payload": payload}})

def initialize(m):
    tools = [{{"name": name, "description": "", "input_schema": {{"type": "object"}}}} for name in TOOLS]
    result = {{"manifest": {{"plugin": {{"id": ID, "version": "0.1.0"}}}}, "server_version": "test"}}
    reply(m, {{**result, "tools": tools}} if tools else result)

def shutdown(m):
    reply(m, {{"ok": True}})
    os._exit(0)

def tool_invoke(m):
    reply(m, m["params"]["args"])

def answered(m):
    pass

{body}

for line in sys.stdin:
    m = json.loads(line)
    method = m.get("method")
    handler = answered if method is None else globals().get(method.replace(".", "_"))
    if handler is not None:
        handler(m)
    elif "id" in m:
        fail(m, -32601, "method not found")
"""


def write_nexo_plugin(
    folder: Path,
    plugin_id: str = "p",
    body: str = "",
    *,
    tools: Sequence[str] = (),
    extends: dict[str, list[str]] | None = None,
    channels: Sequence[str] = (),
    more: str = "",
) -> Path:
    """A plugin folder in `folder`, named after its id; `tools` get the prefix the contract wants."""
    root = folder / plugin_id
    root.mkdir(parents=True, exist_ok=True)
    names = [f"{plugin_id}_{name}" for name in tools]
    lists = {**({"tools": names} if names else {}), **(extends or {})}
    registered = "".join(f'[[plugin.channels.register]]\nkind = "{kind}"\nadapter = "A"\n' for kind in channels)
    offers = "".join(f"{key} = {json.dumps(value)}\n" for key, value in lists.items())
    root.joinpath("nexo-plugin.toml").write_text(
        f'[plugin]\nid = "{plugin_id}"\nversion = "0.1.0"\nname = "P"\ndescription = "A test."\n'
        f'min_nexo_version = ">=0.1.0"\n\n[plugin.entrypoint]\ncommand = "python3"\nargs = ["{FLAG}", "child.py"]\n\n'
        f"[plugin.extends]\n{offers}\n{registered}\n{more}\n"
    )
    root.joinpath("child.py").write_text(
        _CHILD.format(opening=OPENING, id=plugin_id, tools=names, body=textwrap.dedent(body))
    )
    return root
