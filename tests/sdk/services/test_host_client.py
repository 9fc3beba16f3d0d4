"""What each host can be asked for, and the word for what it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.model.errors import Code
from plugbay.model.operations import (
    AskUser,
    CompleteChat,
    DeleteStored,
    FetchUrl,
    GetSnapshot,
    GetStored,
    InvokeAction,
    ListStored,
    Publish,
    PublishSnapshot,
    ReadFile,
    ReadFolder,
    RecallMemory,
    SetStored,
    SubscribeSnapshot,
    WriteLog,
)
from plugbay.sdk.errors import Unsupported
from plugbay.sdk.services.host_client import BROKERED, MODELS, PEOPLE, STORAGE, Unconnected, unsupported_service

OPS: list[tuple[Any, str, str]] = [
    (RecallMemory("a", "q"), "memory", "nexo"),
    (CompleteChat("p", "m", []), "llm", "nexo and mcp"),
    (Publish("t", {}), "events", "nexo and kaged"),
    (GetStored("k"), "storage", "kaged"),
    (SetStored("k", 1), "storage", "kaged"),
    (DeleteStored("k"), "storage", "kaged"),
    (ListStored(), "storage", "kaged"),
    (GetSnapshot("t"), "snapshots", "ainb"),
    (PublishSnapshot("t", b""), "snapshots", "ainb"),
    (SubscribeSnapshot("t"), "snapshots", "ainb"),
    (InvokeAction("a"), "actions", "ainb"),
    (ReadFile("/f"), "files", "ainb"),
    (ReadFolder("/f"), "files", "ainb"),
    (FetchUrl("https://a"), "http", "ainb"),
    (WriteLog("info", "x"), "log", "ainb and mcp"),
    (AskUser("who?"), "ask", "mcp"),
]


@pytest.mark.parametrize(("op", "service", "hosts"), OPS)
def test_every_missing_service_names_itself_and_the_contracts_that_have_it(op: Any, service: str, hosts: str) -> None:
    error = unsupported_service(op, "rune")
    text = f"this host speaks rune and does not offer ctx.{service}; hosts of {hosts} do"
    assert (error.code, error.service, error.contract, str(error)) == (Code.NOT_FOUND, service, "rune", text)


def test_every_service_belongs_to_one_group_but_the_bus_of_events() -> None:
    groups = [MODELS, STORAGE, BROKERED, PEOPLE, {Publish}]
    assert sum(len(group) for group in groups) == len(OPS)
    assert {op for group in groups for op in group} == {type(op) for op, _, _ in OPS}


@pytest.mark.parametrize("ask", [lambda line, op: line.ask(op, list, 1), lambda line, op: line.stream(op, list, 1)])
def test_without_a_host_every_question_is_refused(ask: Any) -> None:
    with pytest.raises(Unsupported, match=r"does not offer ctx\.memory"):
        ask(Unconnected(), RecallMemory("a", "q"))
    with pytest.raises(Unsupported, match=r"does not offer ctx\.events"):
        Unconnected().tell(Publish("t", {}))
