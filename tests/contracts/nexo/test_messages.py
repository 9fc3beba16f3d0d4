"""The parameters of every method, as the contract's examples write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugbay.contracts.nexo import messages
from plugbay.model.operations import (
    Chat,
    CompleteChat,
    DeleteVectors,
    DeliverEvent,
    Publish,
    RecallMemory,
    RunHook,
    SearchVectors,
    SendOutbound,
    StartChannel,
    StopChannel,
    UpsertVectors,
)
from tests.contracts.nexo.talk import MANIFEST, TOOL
from tests.support.codecs import CODECS
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec

METHODS = {method.op: method for method in (*messages.TO_CHILD, *messages.TO_HOST)}

EVENT = {"topic": "plugin.inbound.slack", "source": "slack", "payload": {"text": "hi"}}
REQUEST = {"model": "command-r", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1024}
RECORDS = [{"id": "r1", "content": "hello", "embedding": [0.1, 0.2], "metadata": {"source": "kb"}}]
QUERY = {"embedding": [0.1, 0.2], "limit": 10, "filter": {"namespace": "tenant-1"}}
ASKED = [{"role": "user", "content": "hi"}]

EXAMPLES: list[tuple[Any, str, dict[str, Any]]] = [
    (DeliverEvent("t", EVENT), "broker.event", {"topic": "t", "event": EVENT}),
    (StartChannel("slack", "primary"), "channel.start", {"kind": "slack", "instance": "primary"}),
    (StartChannel("slack"), "channel.start", {"kind": "slack", "instance": None}),
    (StopChannel("slack"), "channel.stop", {"kind": "slack"}),
    (SendOutbound("slack", {"kind": "text"}), "channel.send_outbound", {"kind": "slack", "msg": {"kind": "text"}}),
    (
        Chat("cohere", "command-r", REQUEST),
        "llm.chat",
        {"provider": "cohere", "model": "command-r", "stream": False, "request": REQUEST},
    ),
    (
        Chat("cohere", "command-r", REQUEST, stream=True),
        "llm.chat",
        {"provider": "cohere", "model": "command-r", "stream": True, "request": REQUEST},
    ),
    (
        RunHook("before_message", {"body": "ping"}),
        "hook.on_hook",
        {"plugin_id": "p", "hook_name": "before_message", "event": {"body": "ping"}},
    ),
    (
        UpsertVectors("pinecone", "kb", RECORDS),
        "memory.vector_upsert",
        {"backend": "pinecone", "collection": "kb", "records": RECORDS},
    ),
    (
        SearchVectors("pinecone", "kb", QUERY),
        "memory.vector_search",
        {"backend": "pinecone", "collection": "kb", "query": QUERY},
    ),
    (
        DeleteVectors("pinecone", "kb", ["r1"]),
        "memory.vector_delete",
        {"backend": "pinecone", "collection": "kb", "ids": ["r1"]},
    ),
    (Publish("t", EVENT), "broker.publish", {"topic": "t", "event": EVENT}),
    (RecallMemory("a", "q"), "memory.recall", {"agent_id": "a", "query": "q", "limit": 10}),
    (
        CompleteChat("minimax", "m2", ASKED),
        "llm.complete",
        {"provider": "minimax", "model": "m2", "messages": ASKED, "max_tokens": 4096, "temperature": 0.7},
    ),
    (
        CompleteChat("minimax", "m2", ASKED, max_tokens=5, temperature=0, system_prompt="", stream=True),
        "llm.complete",
        {
            "provider": "minimax",
            "model": "m2",
            "messages": ASKED,
            "max_tokens": 5,
            "temperature": 0,
            "system_prompt": "",
            "stream": True,
        },
    ),
]


@requirement("nexo:wire-methods")
@pytest.mark.parametrize(("op", "name", "params"), EXAMPLES, ids=[f"{row[1]}-{n}" for n, row in enumerate(EXAMPLES)])
def test_every_operation_has_its_method_and_its_parameters(op: Any, name: str, params: dict[str, Any]) -> None:
    method = METHODS[type(op)]
    assert method.name == name
    assert messages.params(method, op, "p") == params


@pytest.mark.parametrize("codec", [make() for make in CODECS.values()], ids=list(CODECS))
def test_the_prefix_of_a_tool_call_is_everything_up_to_its_args(codec: Codec) -> None:
    assert messages.tool_prefix(codec, "p", 'p_"t') == (
        b'"method":"tool.invoke","params":{"plugin_id":"p","tool_name":"p_\\"t","args":'
    )


@requirement("nexo:wire-initialize-reply")
def test_the_reply_to_initialize_has_exactly_its_keys_and_no_empty_catalogue() -> None:
    tool = {**TOOL, "handler": "not for the wire"}
    assert messages.identity_reply(messages.Identity(MANIFEST, "v")) == {"manifest": MANIFEST, "server_version": "v"}
    assert messages.identity_reply(messages.Identity(MANIFEST, "v", (tool,)))["tools"] == [TOOL]


@pytest.mark.parametrize(("manifest", "id"), [(MANIFEST, "p"), ({}, ""), ({"plugin": 1}, ""), ({"plugin": {}}, "")])
def test_an_identity_knows_its_id_from_the_manifest(manifest: dict[str, Any], id: str) -> None:
    assert messages.Identity(manifest, "v").plugin_id == id
