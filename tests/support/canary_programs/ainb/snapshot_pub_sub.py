"""A plugin that publishes a snapshot and hears of another; broken: it does so otherwise than its manifest says."""

from __future__ import annotations

import child
from child import HEARS, KIND, SERVES, Message, ask, publish, say, serve, tell, unb64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def init(params: Message) -> Any:
    ask("host/snapshot/get", topic="canary.everything" if KIND == "gets_elsewhere" else "canary.tick")
    payload = b'{"count":0}'
    if KIND == "undeclared":
        publish("canary.secret", payload)
    elif KIND == "writes_arrays":
        tell("host/snapshot/publish", topic="canary.count", payload=list(payload))
    elif KIND == "publishes_with_id":
        say(id=7, method="host/snapshot/publish", params={"topic": "canary.count", "payload": child.b64(payload)})
    else:
        publish("canary.count", payload)
    return child.init(params)


def on_event(params: Message) -> None:
    data = unb64(params["payload"])
    if KIND == "needs_a_byte":
        data[0]
    if KIND == "only_base64":
        params["payload"].encode()


SERVES["plugin/init"] = init
HEARS["plugin/handle_event"] = on_event
serve()
