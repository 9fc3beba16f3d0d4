"""One process under test: its lines are read strictly, its end and what it leaves are seen."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from plugbay.conformance.engine import subject as module
from plugbay.conformance.engine.subject import (
    UNREAD,
    Ended,
    Frame,
    Late,
    NoAnswer,
    NotTried,
    RuleBroken,
    Subject,
    marked,
)
from plugbay.contracts.frames import Lines
from plugbay.process.child import Spawner
from plugbay.process.command import Launch
from plugbay.process.status import ExitStatus
from tests.support.patience import PATIENCE, until
from tests.support.requirements import requirement

MAX_LINE = 1000
T = TypeVar("T")


def with_subject(script: str, story: Callable[[Subject], Awaitable[T]]) -> T:
    """Tell a story about one shell script, and see it off."""

    async def tell() -> T:
        spawner = Spawner()
        try:
            env = {"PATH": os.environ["PATH"]}
            launch = Launch(argv=("/bin/sh", "-c", script), cwd=Path("/"), env=env, label="test")
            subject = Subject(await spawner.spawn(launch, PATIENCE), Lines(MAX_LINE))
            try:
                return await story(subject)
            finally:
                await subject.close()
        finally:
            await spawner.close()

    return asyncio.run(asyncio.wait_for(tell(), PATIENCE))


@pytest.mark.parametrize(
    ("script", "frame"),
    [
        ("echo '{\"a\":1}'", Frame(b'{"a":1}', {"a": 1})),
        ("printf '{}'", Frame(b"{}", {})),
        ("printf ' {} \\r\\n'", Frame(b"{}", {})),
        ("echo", Frame(b"", problem="a blank line")),
        ("echo '[1]'", Frame(b"[1]", [1], "JSON, but not an object")),
        ("echo null", Frame(b"null", None, "JSON, but not an object")),
    ],
)
def test_a_line_is_read_with_its_value_or_its_problem(script: str, frame: Frame) -> None:
    assert with_subject(script, lambda subject: subject.next_frame(PATIENCE)) == frame


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo hello", "not JSON"),
        ("echo '{} {}'", "not JSON"),
        ("echo '{\"a\":NaN}'", "not JSON"),
        ("printf '\\377\\n'", "not UTF-8"),
        ("printf '{\"a\"'", "not JSON"),
        ("head -c 2000 /dev/zero | tr '\\0' a; echo", "a line of more than 1,000 bytes"),
    ],
)
def test_a_line_that_is_no_message_says_why(script: str, problem: str) -> None:
    frame = with_subject(script, lambda subject: subject.next_frame(PATIENCE))
    assert isinstance(frame, Frame)
    assert problem in frame.problem


def test_what_is_sent_arrives_and_closing_ends_it() -> None:
    async def story(subject: Subject) -> None:
        subject.send(b'{"a":1}\n')
        assert await subject.next_frame(PATIENCE) == Frame(b'{"a":1}', {"a": 1})
        await subject.send_slowly(b'{"b":2}\n', 1, 0)
        assert await subject.next_frame(PATIENCE) == Frame(b'{"b":2}', {"b": 2})
        subject.close_stdin()
        assert await subject.exited(PATIENCE) == ExitStatus(code=0)
        assert isinstance(await subject.next_frame(PATIENCE), Ended)
        assert list(subject.transcript) == [
            ("→", b'{"a":1}\n'),
            ("←", b'{"a":1}'),
            ("→", b'{"b":2}\n'),
            ("←", b'{"b":2}'),
        ]

    with_subject("cat", story)


@requirement("host:conform-busy-machine")
def test_time_without_a_core_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    starved = 0.0

    async def story(subject: Subject) -> None:
        nonlocal starved
        starved = 5.0
        assert isinstance(await subject.next_frame(0.0, exact=True), Late)
        assert await subject.next_frame(0.0) == Frame(b"{}", {})
        assert isinstance(await subject.next_frame(0.0), Late), "time extends waits once"
        starved = 1e9
        subject.close_stdin()
        assert await subject.exited(0.0) == ExitStatus(code=0)

    monkeypatch.setattr(module, "_starved_seconds", lambda pid: {pid: starved})
    with_subject("sleep 0.5; echo '{}'; cat", story)


def test_the_time_without_a_core_of_each_process_of_a_plugin_is_read_from_the_kernel() -> None:
    async def story(subject: Subject) -> None:
        frame = await subject.next_frame(PATIENCE)
        assert isinstance(frame, Frame)
        shell, tool = subject.child.pid, int(frame.line)
        starved = module._starved_seconds(shell)
        assert starved.keys() == {shell, tool, os.getpid(), module.HYPERVISOR}
        assert starved[os.getpid()] > 0.0

    with_subject("sleep 1000 & echo $!; wait", story)


def test_nothing_in_time_is_late_and_the_process_is_still_there() -> None:
    async def story(subject: Subject) -> None:
        assert isinstance(await subject.next_frame(0.05), Late)
        assert await subject.exited(0.05) is None

    with_subject("cat", story)


def test_lines_that_nobody_looked_at_are_kept_up_to_a_bound() -> None:
    async def story(subject: Subject) -> int:
        assert isinstance(await subject.next_frame(PATIENCE), Frame)
        return len(subject.unread())

    assert with_subject("printf '{}\\n{}\\n'; exec cat", story) == 1, "both lines come in one piece"
    assert UNREAD <= with_subject("yes '{}'", story) < UNREAD + 100_000


def test_the_end_of_a_process_ends_its_output_whoever_else_holds_it() -> None:
    async def story(subject: Subject) -> None:
        assert await subject.next_frame(PATIENCE) == Frame(b"{}", {})
        assert isinstance(await subject.next_frame(PATIENCE), Ended)

    with_subject("sleep 600 & echo '{}'", story)


def test_how_it_left_is_known_only_when_it_left_by_itself() -> None:
    async def leave(subject: Subject) -> ExitStatus | None:
        await subject.exited(PATIENCE)
        await subject.close()
        return subject.left

    async def stay(subject: Subject) -> ExitStatus | None:
        await subject.close()
        return subject.left

    assert with_subject("exit 3", leave) == ExitStatus(code=3)
    assert with_subject("exec cat", stay) is None


@pytest.mark.parametrize(
    ("script", "left"),
    [
        ("cat >/dev/null", 0),
        ("sleep 600 & cat >/dev/null", 1),
        ("(setsid sleep 600 &) ; cat >/dev/null", 1),
    ],
    ids=["alone", "in_its_group", "in_a_session_of_its_own"],
)
def test_what_a_process_leaves_running_is_seen_before_it_is_cleaned_up(script: str, left: int) -> None:
    async def story(subject: Subject) -> list[str] | None:
        subject.close_stdin()
        return await subject.exited_with_leftovers(PATIENCE)

    found = with_subject(script, story)
    assert found is not None
    assert len(found) == left
    assert all("sleep 600" in words for words in found), "a fork that has not become sleep yet has its shell's words"


def test_a_process_that_stays_has_no_leftovers_yet() -> None:
    async def story(subject: Subject) -> list[str] | None:
        await until(lambda: marked(subject.child.token) == [subject.child.pid])  # not while the shell becomes cat
        return await subject.exited_with_leftovers(0.05)

    assert with_subject("exec cat", story) is None


def test_a_process_that_left_earlier_has_been_cleaned_up() -> None:
    async def story(subject: Subject) -> list[str] | None:
        await subject.exited(PATIENCE)
        return await subject.exited_with_leftovers(PATIENCE)

    assert with_subject("exit 0", story) == []


def test_what_a_process_leaves_is_seen_even_if_it_leaves_with_its_last_word() -> None:
    async def story(subject: Subject) -> list[str] | None:
        subject.hold()
        subject.send(b"{}\n")
        assert isinstance(await subject.next_frame(PATIENCE), Frame)
        while not subject.child.has_ended():
            assert isinstance(await subject.next_frame(0.05), Ended | Late)
        return await subject.exited_with_leftovers(PATIENCE)

    found = with_subject("sleep 600 & read line; echo '{}'", story)
    assert found is not None and len(found) == 1


def test_a_held_loop_still_takes_what_a_process_writes_on_stderr() -> None:
    flood = "read line; yes oh dear | head -c 300000 >&2; echo '{}'; exec cat"

    async def story(subject: Subject) -> Frame | Ended | Late:
        subject.hold()
        subject.send(b"{}\n")
        return await subject.next_frame(PATIENCE)

    assert with_subject(flood, story) == Frame(b"{}", {})
    assert isinstance(with_subject("exec cat", _nothing_said_while_held), Late)


async def _nothing_said_while_held(subject: Subject) -> Frame | Ended | Late:
    subject.hold()
    return await subject.next_frame(0.05)


def test_a_broken_step_may_show_a_line() -> None:
    frame = Frame(b"{}", {})
    assert (str(RuleBroken("it sang", frame)), RuleBroken("it sang", frame).frame) == ("it sang", frame)
    assert RuleBroken("it sang").frame is None
    assert [RuleBroken("it slept", late=late).late for late in (True, False)] == [True, False]


def test_a_line_that_never_came_is_a_broken_step_and_a_rule_without_a_case_is_not() -> None:
    assert isinstance(NoAnswer("nothing came"), RuleBroken)
    assert not isinstance(NotTried("it has no screen"), RuleBroken)
