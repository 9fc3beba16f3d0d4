"""A plugin that publishes in chunks and reads such; broken: in another order, or it believes that there is one."""

from __future__ import annotations

import child
from child import HEARS, KIND, SERVES, Message, json, publish, serve, unb64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ORDERS: dict[str, list[tuple[int, int, bool]]] = {
    "": [(1, 0, False), (1, 1, False), (1, 2, True), (2, 0, True), (3, 0, False), (4, 0, True)],
    "begins_with_1": [(1, 1, False), (1, 2, True)],
    "leaves_one_out": [(1, 0, False), (1, 2, True)],
    "backwards": [(1, 2, False), (1, 1, False), (1, 0, True)],
    "goes_on_after_the_end": [(1, 0, True), (1, 1, True)],
    "changes_the_batch": [(1, 0, False), (2, 1, True)],
    "never_ends": [(1, 0, False), (1, 1, False)],
}
"""published_ns, chunk_index and is_final of each chunk."""

collected: list[Any] | None = None


def init(params: Message) -> Any:
    for batch, index, final in ORDERS.get(KIND, ORDERS[""]):
        chunk = {"version": 3, "published_ns": batch, "partial": False, "chunk_index": index, "is_final": final}
        if KIND == "no_version":
            del chunk["version"]
        publish("canary.usage", json.dumps({**chunk, "data": {"calls": [index]}}).encode())
    return child.init(params)


def on_event(params: Message) -> None:
    global collected
    try:
        chunk = json.loads(unb64(params["payload"]))
    except ValueError:
        return
    if not isinstance(chunk, dict) or "chunk_index" not in chunk:
        return
    if KIND == "dies_of_other_versions":
        assert chunk["version"] == 3
    if chunk["chunk_index"] == 0:
        collected = []
    if KIND == "dies_of_orphans":
        assert collected is not None
    if collected is not None:
        collected.append(chunk["data"])


SERVES["plugin/init"] = init
HEARS["plugin/handle_event"] = on_event
serve()
