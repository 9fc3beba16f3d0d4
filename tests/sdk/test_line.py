"""What each host can be asked for, and the word for what it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.model.errors import Code
from plugbay.model.operations import (
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
from plugbay.sdk.errors import ServiceError
from plugbay.sdk.line import BROKERED, MODELS, STORAGE, Unconnected, lacking

OPS: list[tuple[Any, str]] = [
    (RecallMemory("a", "q"), "memory"),
    (CompleteChat("p", "m", []), "language models"),
    (Publish("t", {}), "event bus"),
    (GetStored("k"), "storage"),
    (SetStored("k", 1), "storage"),
    (DeleteStored("k"), "storage"),
    (ListStored(), "storage"),
    (GetSnapshot("t"), "snapshots"),
    (PublishSnapshot("t", b""), "snapshots"),
    (SubscribeSnapshot("t"), "snapshots"),
    (InvokeAction("a"), "actions"),
    (ReadFile("/f"), "files"),
    (ReadFolder("/f"), "files"),
    (FetchUrl("https://a"), "network"),
    (WriteLog("info", "x"), "log"),
]


@pytest.mark.parametrize(("op", "service"), OPS)
def test_every_service_that_is_missing_has_a_name(op: Any, service: str) -> None:
    error = lacking(op)
    assert (error.code, str(error)) == (Code.NOT_FOUND, f"this host has no {service}")


def test_every_service_belongs_to_one_group_but_the_bus_of_events() -> None:
    groups = [MODELS, STORAGE, BROKERED, {Publish}]
    assert sum(len(group) for group in groups) == len(OPS)
    assert {op for group in groups for op in group} == {type(op) for op, _ in OPS}


@pytest.mark.parametrize("ask", [lambda line, op: line.ask(op, list, 1), lambda line, op: line.stream(op, list, 1)])
def test_without_a_host_every_question_is_refused(ask: Any) -> None:
    with pytest.raises(ServiceError, match="this host has no memory"):
        ask(Unconnected(), RecallMemory("a", "q"))
    with pytest.raises(ServiceError, match="this host has no event bus"):
        Unconnected().tell(Publish("t", {}))
