"""Actions by name: who does them, within which time, and what an action that never returns costs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from plugbay.host.services.actions import (
    DEFAULT_SECONDS,
    LONGEST_SECONDS,
    MAX_ACTION,
    MAX_RUNNING,
    Actions,
    Handler,
)
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.sizes import MAX_PAYLOAD
from tests.support.loops import Run
from tests.support.patience import PATIENCE, until
from tests.support.requirements import requirement


def offering(handler: Handler, **options: Any) -> Actions:
    actions = Actions()
    actions.register("do", handler, **options)
    return actions


async def outcome(actions: Actions, action: str = "do", timeout_ms: int = 5000, may_spawn: bool = False) -> Any:
    """The answer, or the code of the failure."""
    try:
        return await actions.invoke("p", action, b"in", timeout_ms, may_spawn=may_spawn)
    except CallFailed as error:
        return error.code


async def upper(data: bytes) -> bytes:
    return data.upper()


@requirement("ainb:host-action-invoke")
def test_an_async_handler_and_a_plain_one_answer_alike(run: Run) -> None:
    async def main() -> None:
        loop_thread = threading.get_ident()
        assert await outcome(offering(upper)) == b"IN"
        assert await outcome(offering(bytes.upper)) == b"IN"
        assert await outcome(offering(lambda data: str(threading.get_ident()).encode())) != str(loop_thread).encode()

    run(main)


@requirement("ainb:host-action-unknown")
def test_an_unknown_action_is_invalid_input(run: Run) -> None:
    async def main() -> None:
        assert await outcome(Actions(), "none") == Code.INVALID_INPUT

    run(main)


@requirement("ainb:host-action-timeout")
def test_an_action_that_never_returns_costs_its_own_deadline_and_nothing_else(run: Run) -> None:
    stuck, cancelled = threading.Event(), []

    async def forever(data: bytes) -> bytes:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.append(data)
            raise
        return b""

    async def deaf(data: bytes) -> bytes:
        while not stuck.is_set():
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                continue
        return b""

    def hung(data: bytes) -> bytes:
        stuck.wait()
        return b""

    async def main() -> None:
        stuck.clear()
        cancelled.clear()
        handlers: list[Handler] = [forever, deaf, hung]
        for handler in handlers:
            actions = offering(handler)
            actions.register("other", upper)
            waiting = asyncio.ensure_future(outcome(actions, timeout_ms=30))
            assert await outcome(actions, "other") == b"IN"
            assert await waiting == Code.TIMEOUT
        await until(lambda: cancelled == [b"in"])
        stuck.set()
        await until(lambda: not any("plugbay-action" in thread.name for thread in threading.enumerate()))

    run(main)


@requirement("ainb:host-action-timeout")
@pytest.mark.parametrize(
    ("timeout_ms", "seconds"), [(0, DEFAULT_SECONDS), (1, 0.001), (2500, 2.5), (10**12, LONGEST_SECONDS)]
)
def test_the_time_is_the_callers_or_the_hosts_and_never_without_end(run: Run, timeout_ms: int, seconds: float) -> None:
    given: list[float] = []

    async def forward(caller: str, action: str, data: bytes, seconds: float) -> bytes | None:
        given.append(seconds)
        return b"out"

    async def main() -> None:
        given.clear()
        assert await Actions(forward).invoke("p", "x", b"", timeout_ms, may_spawn=False) == b"out"
        assert given == [seconds]

    run(main)


@requirement("ainb:host-action-spawns")
def test_an_action_that_starts_a_process_is_for_those_that_may_have_one_started(run: Run) -> None:
    async def main() -> None:
        actions = offering(upper, spawns=True)
        assert await outcome(actions, may_spawn=True) == b"IN"
        with pytest.raises(CallFailed) as caught:
            await actions.invoke("p", "do", b"", may_spawn=False)
        assert caught.value.code == Code.CAPABILITY_NOT_ALLOWED
        assert caught.value.failure.detail == {"capability": "spawn_subprocess"}

    run(main)


@requirement("ainb:host-action-forwarded")
def test_an_action_that_the_host_lacks_is_forwarded(run: Run) -> None:
    asked: list[tuple[str, str, bytes]] = []

    async def forward(caller: str, action: str, data: bytes, seconds: float) -> bytes | None:
        asked.append((caller, action, data))
        if action == "fails":
            raise CallFailed(Failure(Code.PLUGIN_ERROR, "no"))
        if action == "sleeps":
            await asyncio.sleep(60)
        return b"theirs" if action == "theirs" else None

    async def main() -> None:
        asked.clear()
        actions = Actions(forward)
        actions.register("ours", upper)
        assert await outcome(actions, "ours") == b"IN"
        assert asked == []
        assert await outcome(actions, "theirs") == b"theirs"
        assert asked == [("p", "theirs", b"in")]
        assert await outcome(actions, "nobodys") == Code.INVALID_INPUT
        assert await outcome(actions, "fails") == Code.PLUGIN_ERROR
        assert await outcome(actions, "sleeps", timeout_ms=20) == Code.TIMEOUT

    run(main)


@pytest.mark.parametrize("answer", [None, "text", 7, bytes(MAX_PAYLOAD + 1)], ids=["none", "text", "int", "huge"])
def test_an_answer_that_is_none_is_the_hosts_own_fault(run: Run, answer: Any) -> None:
    async def main() -> None:
        assert await outcome(offering(lambda data: answer)) == Code.INTERNAL

    run(main)


def test_a_handler_that_raises_is_a_failure_and_one_that_says_how_it_failed_is_believed(run: Run) -> None:
    def raises(error: Exception) -> Callable[[bytes], bytes]:
        def handler(data: bytes) -> bytes:
            raise error

        return handler

    async def main() -> None:
        assert await outcome(offering(raises(ValueError("a bug")))) == Code.INTERNAL
        assert await outcome(offering(raises(CallFailed(Failure(Code.NOT_FOUND, "no such row"))))) == Code.NOT_FOUND

    run(main)


def test_one_caller_has_so_many_actions_under_way_and_others_are_not_concerned(run: Run) -> None:
    async def main() -> None:
        stuck = threading.Event()
        actions = offering(lambda data: b"done" if stuck.wait() else b"")
        waiting = [asyncio.ensure_future(outcome(actions, timeout_ms=10)) for _ in range(MAX_RUNNING)]
        assert set(await asyncio.gather(*waiting)) == {Code.TIMEOUT}
        assert await outcome(actions) == Code.OVERLOADED, "their threads are still there"
        other = asyncio.ensure_future(actions.invoke("q", "do", b"", 5000, may_spawn=False))
        await asyncio.sleep(0)
        stuck.set()
        assert await other == b"done"
        await until(lambda: actions._running["p"] == 0)
        assert await outcome(actions) == b"done"

    run(main)


def test_a_cancelled_caller_leaves_no_action_running(run: Run) -> None:
    async def main() -> None:
        ended: list[bool] = []

        async def forever(data: bytes) -> bytes:
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append(True)
            return b""

        actions = offering(forever)
        caller = asyncio.ensure_future(outcome(actions))
        await until(lambda: actions._running["p"] == 1)
        await asyncio.sleep(0)
        caller.cancel()
        await until(lambda: ended == [True] and actions._running["p"] == 0)

    run(main)


def test_a_thread_that_outlives_the_loop_does_no_harm() -> None:
    stuck = threading.Event()

    async def main() -> None:
        assert await outcome(offering(lambda data: b"late" if stuck.wait() else b""), timeout_ms=1) == Code.TIMEOUT

    asyncio.run(main())
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "plugbay-action"]
    assert thread.daemon
    stuck.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.mark.parametrize("name", ["", "a\nb", "x" * (MAX_ACTION + 1), "taken"])
def test_a_name_is_free_and_printable_or_an_error(name: str) -> None:
    actions = Actions()
    actions.register("taken", upper)
    with pytest.raises(ValueError, match=r"name|already"):
        actions.register(name, upper)
    assert actions.names() == ["taken"]


def test_a_plain_handler_does_not_hold_up_the_loop(run: Run) -> None:
    async def main() -> None:
        turned = threading.Event()
        asyncio.get_running_loop().call_later(0.01, turned.set)
        assert (
            await outcome(offering(lambda data: b"it went on" if turned.wait(PATIENCE) else b"it hung"))
            == b"it went on"
        )

    run(main)
