"""Asks the host as KIND says, and prints the code of the error that it got, or `result`: accepted, whatever it is."""

from __future__ import annotations

import child
from child import KIND, SERVES, Message, ask, b64, read, say, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PAYLOAD = b64(b"hi")
HELLO = {"topic": "bad.out", "payload": PAYLOAD}

ASKED: dict[str, tuple[str, Any]] = {
    "get": ("host/snapshot/get", {"topic": "bad.in"}),
    "publish_with_id": ("host/snapshot/publish", HELLO),
    "log_with_id": ("host/log", {"level": "info", "message": "x"}),
    "unknown": ("host/no_such", {}),
    "event_stream": ("host/event_stream_subscribe", {"topic": "t"}),
    "secret": ("host/secret_store_get", {"scope": "global", "key": "k"}),
    "spawn": ("host/spawn_managed_subprocess", {"bin": "/bin/sh"}),
    "plugin_method": ("plugin/render", {}),
    "no_params": ("host/snapshot/get", None),
    "params_array": ("host/snapshot/get", ["bad.in"]),
    "no_topic": ("host/snapshot/get", {}),
    "topic_number": ("host/snapshot/subscribe", {"topic": 7}),
    "other_topic": ("host/snapshot/get", {"topic": "other.topic"}),
    "fleet_topic": ("host/snapshot/subscribe", {"topic": "fleet.status"}),
    "file_outside": ("host/fs/read_file", {"path": "/etc/hostname"}),
    "file_relative": ("host/fs/read_file", {"path": "notes/today"}),
    "file_climbs_out": ("host/fs/read_file", {"path": "/usr/share/plugbay-no-such/../../../etc/hostname"}),
    "file_missing": ("host/fs/read_file", {"path": "/usr/share/plugbay-no-such/today"}),
    "folder_outside": ("host/fs/read_dir", {"path": "/etc"}),
    "file_number": ("host/fs/read_file", {"path": 7}),
    "other_server": ("host/network/fetch", {"url": "https://example.com/"}),
    "no_url": ("host/network/fetch", {"url": "example"}),
    "file_url": ("host/network/fetch", {"url": "file:///etc/hostname"}),
    "loopback": ("host/network/fetch", {"url": "http://127.0.0.1:9/"}),
    "metadata": ("host/network/fetch", {"url": "http://169.254.169.254/latest"}),
    "mapped": ("host/network/fetch", {"url": "http://[::ffff:127.0.0.1]:9/"}),
    "unknown_action": ("host/action/invoke", {"action": "no.such", "payload": "", "timeout_ms": 1000}),
    "action_without_payload": ("host/action/invoke", {"action": "no.such"}),
    "action_that_hangs": ("host/action/invoke", {"action": "conformance.hang", "payload": "", "timeout_ms": 50}),
}


def dispatch(params: Message) -> Any:
    method, given = ASKED[KIND]
    say(
        id=2, method=method, **({} if given is None else {"params": given})
    )  # the number of the request it is busy with
    while "method" in (answer := read()):
        child.waiting.append(answer)
    said = str(answer["error"]["code"]) if "error" in answer else "result"
    return {"stdout": b64(said.encode()), "stderr": "", "exit_code": 0}


def while_greeted(params: Message) -> Any:
    """Asks with the very id of plugin/init before that is answered."""
    said = ask("host/snapshot/subscribe", topic="bad.in")
    assert said["result"] == {}
    return child.init(params)


SERVES["plugin/cli_dispatch"] = child.dispatch if KIND == "while_greeted" else dispatch
if KIND == "while_greeted":
    SERVES["plugin/init"] = while_greeted
serve()
