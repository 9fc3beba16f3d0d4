"""The `ctx` of an invocation. What a process says about it is told in test_vai.py."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from plugbay.sdk import Cancelled
from plugbay.sdk.invocation import InvocationContext, Setting
from plugbay.sdk.services.cancellation import Cancellation
from plugbay.sdk.services.gateway import AwaitableGateway, Gateway
from tests.support.requirements import requirement


def context(said: dict[str, Any], *, awaitable: bool = False, sent: list[Any] | None = None) -> InvocationContext:
    def keep(data: Any) -> dict[str, Any]:
        return {"kept": data}

    send = ([] if sent is None else sent).append
    return InvocationContext("a/p", Setting(said), Cancellation(), send=send, keep=keep, awaitable=awaitable)


@requirement("vai:sdk-context")
@pytest.mark.parametrize("said", [{}, {"context": 7, "config": [], "secrets": "x"}, {"context": {"gateway": "x"}}])
def test_a_call_of_which_nothing_is_said_still_has_a_context(said: dict[str, Any]) -> None:
    ctx = context(said)
    assert (ctx.plugin_id, ctx.invocation_id, ctx.remaining, ctx.scratch, ctx.gateway) == (
        "a/p",
        None,
        None,
        None,
        None,
    )
    assert (dict(ctx.config), dict(ctx.secrets), ctx.cancelled) == ({}, {}, False)


@requirement("vai:sdk-deadline")
def test_a_deadline_is_a_time_of_the_monotonic_clock() -> None:
    past = Setting({"context": {"deadline_at": "2020-01-01T00:00:00Z"}})
    assert past.deadline is not None
    assert past.deadline < monotonic()
    assert past.remaining() == 0.0
    later = Setting({"context": {"deadline_at": "2126-01-01T00:00:00.5+02:00"}}).remaining()
    assert later is not None
    assert later > 1e9


@requirement("vai:sdk-gateway")
@pytest.mark.parametrize(
    ("said", "there"),
    [
        ({"base_url": "https://a", "delegation_token": "t", "scopes": ["x"]}, True),
        ({"base_url": "https://a", "delegation_token": "t", "scopes": None}, True),
        ({"base_url": "https://a", "delegation_token": None}, False),
        ({"base_url": None, "delegation_token": "t"}, False),
        ({"base_url": "https://a", "delegation_token": "t\r\nHost: b"}, False),
        ({}, False),
    ],
)
def test_there_is_a_gateway_when_there_is_a_token(said: dict[str, Any], there: bool) -> None:
    for awaitable, kind in ((False, Gateway), (True, AwaitableGateway)):
        gateway = context({"context": {"gateway": said}}, awaitable=awaitable).gateway
        assert type(gateway) is (kind if there else type(None))


@requirement("vai:sdk-secrets")
def test_the_token_is_in_nothing_that_a_handler_sees_as_it_is() -> None:
    setting = Setting({"context": {"org_id": "o", "gateway": {"base_url": "https://a", "delegation_token": "hunter2"}}})
    assert setting.context == {"org_id": "o"}
    assert "hunter2" not in repr(setting.gateway(awaitable=False))


def test_a_folder_is_a_path() -> None:
    assert context({"context": {"scratch_dir": "/scratch/inv_1"}}).scratch == Path("/scratch/inv_1")


@requirement("vai:sdk-cancel")
def test_a_cancelled_call_knows_it() -> None:
    cancellation = Cancellation()
    ctx = InvocationContext("p", Setting({}), cancellation, send=print, keep=dict, awaitable=False)
    ctx.check_cancelled()
    ctx.sleep(0)
    cancellation.cancel("why")
    assert ctx.cancelled
    for stop in (ctx.check_cancelled, lambda: ctx.sleep(3600)):
        with pytest.raises(Cancelled, match="why"):
            stop()


@requirement("vai:sdk-progress", "vai:sdk-checkpoint")
def test_events_have_the_shapes_of_the_contract() -> None:
    sent: list[Any] = []
    ctx = context({}, sent=sent)
    ctx.progress("half", percent=50)
    ctx.checkpoint({"step": 1})
    assert sent == [
        {"type": "progress", "message": "half", "percent": 50},
        {"type": "checkpoint", "checkpoint": {"kept": {"step": 1}}},
    ]
