"""Carries out the steps of one turn of a scenario against one process.

Each step either passes or raises the reason why the rule is broken. Requests that the plugin makes on its own are
answered as soon as they are read, by the host that the scenario names (`dialects`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from plugbay.conformance.engine.dialects import Reaction
from plugbay.conformance.engine.patterns import Mismatch, match
from plugbay.conformance.engine.scenario import (
    AtMost,
    CloseStdin,
    Every,
    Expect,
    ExpectExit,
    ExpectNoMoreOutput,
    ExpectNoOrphans,
    ExpectRunning,
    ExpectSilence,
    ExpectStderr,
    ExpectStderrWithout,
    Find,
    Last,
    Restart,
    Send,
    SendAll,
    SendChunked,
    SendRaw,
    Settle,
    SkipUnless,
    Step,
    Terminate,
    Tour,
    find_shutdown_step,
)
from plugbay.conformance.engine.subject import Ended, Frame, Late, NoAnswer, NotTried, RuleBroken, Subject, Until
from plugbay.conformance.engine.template import Generator, at, fill
from plugbay.process.command import LaunchFailed

GONE_SECONDS = 0.5
"""How long to wait for the exit status after the end of the output; on a busy machine it comes late."""

LINGER_SECONDS = 0.15
"""How long `every` goes on after its end: a plugin reacts to an event a moment later."""

ASTRAY_SECONDS = 1.0
"""How long to wait for the right answer after an answer with another id."""

REPEATED_ID = 9_999
"""The id of a request that is sent again; no scenario uses it."""

STDERR_LINES = 50
"""Lines of stderr that are searched."""

MISMATCHES = 5
"""Differences that a report names; a picture of 12,000 wrong cells has as many."""

LOOK_SECONDS = 0.01
"""Poll interval for stderr, which has no notification."""


Start = Callable[[], Awaitable[Subject]]
"""Starts the plugin."""


class Conversation:
    """One process at a time, its named values, the host that answers its requests, and its last frame."""

    def __init__(
        self,
        subject: Subject,
        named: Mapping[str, Any],
        generators: Mapping[str, Generator],
        reactions: Sequence[Reaction] = (),
        start_again: Start | None = None,
    ) -> None:
        self.subject = subject
        self._named = dict(named)
        self._generators = generators
        self._reactions = reactions
        self._start_again = start_again
        self._results: set[int] = set()
        """The requests of the last tour that were answered with a result."""
        self.last: Frame | None = None
        """The frame that was read last."""
        self.at = 0
        """How many steps have begun."""

    async def carry_out(self, steps: Sequence[Step]) -> None:
        """Carry out the steps in order; raises `RuleBroken` or `NotTried`."""
        shutdown_step = find_shutdown_step(steps)
        for step in steps:
            self.at += 1
            if step is shutdown_step:
                self.subject.hold()
            await _DOES[type(step)](self, step)

    async def _send(self, step: Send) -> None:
        body = encode(self._fill(step.send), step.escape)
        self.subject.send(self.subject.framing.wrap(body, step.ending or self._fill(step.header)))

    async def _send_raw(self, step: SendRaw) -> None:
        self.subject.send(str(self._fill(step.send_raw)).encode())

    async def _send_chunked(self, step: SendChunked) -> None:
        chunks = step.send_chunked
        await self.subject.send_slowly(self._frame_message(self._fill(chunks.message)), chunks.bytes, chunks.pause)

    async def _send_all(self, step: SendAll) -> None:
        self.subject.send(b"".join(self._frame_message(message) for message in self._fill(step.send_all)))

    async def _expect(self, step: Expect) -> None:
        frame = await self._next(Until(self._seconds(step.within)), aside=False)
        self._hold_to(step.expect, frame)
        self._named |= {name: at(frame.value, path) for name, path in step.remember.items()}

    async def _find(self, step: Find) -> None:
        until = Until(step.within)
        try:
            while self._mismatches(step.find, frame := await self._next(until)):
                if not self._mismatches(step.until, frame):
                    until = Until(LINGER_SECONDS)
        except NoAnswer as reason:
            raise NotTried(step.or_skip) if step.or_skip else reason from None

    async def _every(self, step: Every) -> None:
        until, found, came = Until(step.within), 0, False
        try:
            while True:
                frame = await self._next(until)
                if not self._mismatches(step.every, frame):
                    found += 1
                    self._hold_to(step.must, frame)
                if not came and not self._mismatches(step.until, frame):
                    until, came, end = Until(LINGER_SECONDS), True, frame
        except NoAnswer:
            if not came:
                raise
        if not found and step.or_skip:
            raise NotTried(step.or_skip)
        self.last = end

    async def _tour(self, step: Tour) -> None:
        earlier, self._results = self._results, set()
        seen: list[Frame] = []
        try:
            for message in self._fill(step.tour):
                await self._stop_at(step, message, seen, earlier)
        except NoAnswer:
            if step.answered:
                raise
        await self._look_on(step, seen)
        if not seen and step.or_skip:
            raise NotTried(step.or_skip)

    async def _stop_at(self, step: Tour, message: Any, seen: list[Frame], earlier: set[int]) -> None:
        """Send one message of a tour, and wait for the answer if it is a request."""
        self.subject.send(self._frame_message(message))
        if "id" not in message:
            return
        answer = await self._answer(
            message["id"], Until(step.within), lambda frame: self._note(step, frame, seen), strict=step.answered
        )
        if "result" in answer.value:
            self._results.add(message["id"])
        elif step.as_before and message["id"] in earlier:
            raise RuleBroken("the same request had a result before", answer)

    def _note(self, step: Tour, frame: Frame, seen: list[Frame]) -> None:
        if not self._mismatches(step.those, frame):
            self._hold_to(step.must, frame)
            seen.append(frame)

    async def _look_on(self, step: Tour, seen: list[Frame]) -> None:
        """Go on reading for a moment, and longer if something expected is missing."""
        until = Until(LINGER_SECONDS)
        patience = Until(step.patience)
        while True:
            try:
                self._note(step, await self._next(until), seen)
            except NoAnswer:
                wrong = match(step.together, [frame.value for frame in seen], self._named)
                if not wrong:
                    return
                if patience.left() and not self.subject.is_over:
                    until = Until(min(LINGER_SECONDS, patience.left()))
                elif await self._comes_late(step, seen):
                    return
                else:
                    raise RuleBroken(_list_mismatches(wrong), next(reversed(seen), None), late=True) from None

    async def _comes_late(self, step: Tour, seen: list[Frame]) -> bool:
        """Whether the missing answers come after all; False if one is lost. Raises `NotTried` if that is not shown."""
        answered = {frame.value.get("id") for frame in seen}
        missing = [message for message in self._fill(step.repeat or []) if message["id"] not in answered]
        if not missing or self.subject.is_over:
            return False
        self.subject.send(self._frame_message({**missing[0], "id": REPEATED_ID}))
        until, is_repetition_answered = Until(step.patience), False
        while True:
            try:
                frame = await self._next(until)
            except NoAnswer:
                if is_repetition_answered or self.subject.is_over:
                    return False
                raise NotTried(f"its answers take more than {2 * step.patience:g} s") from None
            if frame.value.get("id") == REPEATED_ID and "method" not in frame.value:
                until, is_repetition_answered = Until(step.patience), True
                continue
            self._note(step, frame, seen)
            if not match(step.together, [frame.value for frame in seen], self._named):
                return True

    async def _settle(self, step: Settle) -> None:
        message, alike, before = self._fill(step.settle), 0, None
        for count in range(step.frames + step.alike):
            self.subject.send(self._frame_message({**message, "id": message["id"] + count}))
            answer = await self._answer(message["id"] + count, Until(step.within))
            value = at(answer.value, step.of)
            alike = alike + 1 if count and value == before else 0
            if alike == step.alike:
                return
            before = value
        raise RuleBroken(
            f"{step.of} still changed after {step.frames} answers, although nothing had happened", self.last
        )

    async def _last(self, step: Last) -> None:
        if self.last is None:
            raise RuleBroken("it has sent nothing yet")
        self._hold_to(step.last, self.last)

    async def _skip_unless(self, step: SkipUnless) -> None:
        value = None if self.last is None else self.last.value
        if match(step.skip_unless, value, self._named):
            raise NotTried(step.because)

    async def _at_most(self, step: AtMost) -> None:
        until, found = Until(step.within), 0
        try:
            while found <= step.at_most:
                found += not self._mismatches(step.lines, await self._next(until))
        except NoAnswer:
            return
        raise RuleBroken(f"it wrote more than {step.at_most} of them within {step.within:g} s", self.last)

    async def _expect_silence(self, step: ExpectSilence) -> None:
        try:
            frame = await self._next(Until(step.expect_silence, exact=True), aside=False)
        except NoAnswer:
            return
        raise RuleBroken("it wrote output without a request", frame)

    async def _expect_stderr(self, step: ExpectStderr) -> None:
        wanted, until = step.expect_stderr, Until(step.expect_stderr.within)
        while wanted.contains.lower() not in "\n".join(self.subject.child.stderr.tail(STDERR_LINES)).lower():
            if not until.left():
                raise RuleBroken(f"{wanted.contains!r} did not come on stderr within {wanted.within:g} s", late=True)
            await asyncio.sleep(LOOK_SECONDS)

    async def _expect_stderr_without(self, step: ExpectStderrWithout) -> None:
        if self._fill(step.expect_stderr_without) in "\n".join(self.subject.child.stderr.tail(STDERR_LINES)):
            raise RuleBroken("it wrote a forbidden text on stderr")

    async def _expect_running(self, step: ExpectRunning) -> None:
        status = await self.subject.exited(step.expect_running)
        if status is not None:
            raise RuleBroken(f"it exited on its own ({status.describe()})")

    async def _close_stdin(self, step: CloseStdin) -> None:
        self.subject.close_stdin()

    async def _terminate(self, step: Terminate) -> None:
        self.subject.child.terminate()

    async def _restart(self, step: Restart) -> None:
        assert self._start_again is not None
        await self.subject.close()
        await self.subject.child.wait()
        try:
            self.subject = await self._start_again()
        except LaunchFailed as error:
            raise RuleBroken(f"it cannot be started again: {error.message}") from None

    async def _expect_exit(self, step: ExpectExit) -> None:
        wanted, seconds = step.expect_exit, self._seconds(step.expect_exit.within)
        status = await self.subject.exited(seconds)
        if status is None:
            raise RuleBroken(f"it was still running {seconds:g} s later", late=True)
        if wanted.code is not None and status.code != wanted.code:
            raise RuleBroken(f"it ended with {status.describe()}, not with exit code {wanted.code}")

    async def _expect_no_more_output(self, step: ExpectNoMoreOutput) -> None:
        unread = self.subject.unread()
        if unread:
            count = "one more line" if len(unread) == 1 else f"{len(unread)} more lines"
            raise RuleBroken(f"it wrote {count} than the contract allows", unread[0])

    async def _expect_no_orphans(self, step: ExpectNoOrphans) -> None:
        seconds = self._seconds(step.expect_no_orphans["within"])
        left = await self.subject.exited_with_leftovers(seconds)
        if left is None:
            raise RuleBroken(f"it was still running {seconds:g} s later", late=True)
        if left:
            raise RuleBroken(f"it exited, but these processes did not: {', '.join(left)}")

    # Frames of the plugin.

    async def _next(self, until: Until, aside: bool = True) -> Frame:
        """The next frame; the scenario's host reacts to it first. Raises `NoAnswer` when none comes.

        A frame to which the host reacts is an `aside`: it is not an answer to a request of the scenario.
        """
        while True:
            frame = await self.subject.next_frame(until.left(), exact=until.exact)
            if isinstance(frame, Late):
                raise NoAnswer(f"nothing came within {until.seconds:g} s", late=True)
            if isinstance(frame, Ended):
                raise NoAnswer(f"its output ended{await self._describe_exit()}")
            self.last = frame
            if not self._react(frame) or aside:
                return frame

    async def _answer(
        self, id: int, until: Until, passing: Callable[[Frame], None] = lambda frame: None, *, strict: bool = True
    ) -> Frame:
        """The answer to the only open request; every frame before it is passed to `passing`.

        If `strict`, no other answer may come. If not, the right one must follow an answer with another id soon.
        """
        while True:
            frame = await self._next(until)
            passing(frame)
            wrong = self._mismatches({"id": id, "method": "$absent"}, frame)
            if not wrong:
                return frame
            if "method" not in frame.value and self._reaction(frame) is None:
                if strict:
                    raise RuleBroken(_list_mismatches(wrong), frame)
                until = Until(min(until.left(), ASTRAY_SECONDS))

    def _react(self, frame: Frame) -> bool:
        """Send the host's reaction to this frame; False when it has none."""
        reaction = self._reaction(frame)
        if reaction is None:
            return False
        named = {**self._named, "asked": frame.value.get("id"), "asked_with": frame.value.get("params")}
        for message in reaction.says:
            self.subject.send(self._frame_message(fill(message, named, self._generators)))
        return True

    def _reaction(self, frame: Frame) -> Reaction | None:
        return next((each for each in self._reactions if not match(each.when, frame.value, self._named)), None)

    def _mismatches(self, pattern: Any, frame: Frame) -> list[Mismatch]:
        if frame.problem:
            raise RuleBroken(f"not one JSON object {self.subject.framing.where}: {frame.problem}", frame)
        return match(pattern, frame.value, self._named)

    def _hold_to(self, pattern: Any, frame: Frame) -> None:
        if mismatches := self._mismatches(pattern, frame):
            raise RuleBroken(_list_mismatches(mismatches), frame)

    async def _describe_exit(self) -> str:
        status = await self.subject.exited(GONE_SECONDS)
        return f" ({status.describe()})" if status is not None else ""

    def _seconds(self, within: float | str) -> float:
        """The seconds of a step, or of the manifest that it refers to."""
        return float(self._named[within[1:]]) if isinstance(within, str) else within

    def _fill(self, template: Any) -> Any:
        return fill(template, self._named, self._generators)

    def _frame_message(self, message: Any) -> bytes:
        return self.subject.framing.wrap(encode(message))


_DOES: dict[type[Step], Callable[[Conversation, Any], Awaitable[None]]] = {
    Send: Conversation._send,
    SendRaw: Conversation._send_raw,
    SendChunked: Conversation._send_chunked,
    SendAll: Conversation._send_all,
    Expect: Conversation._expect,
    Find: Conversation._find,
    Every: Conversation._every,
    Tour: Conversation._tour,
    Settle: Conversation._settle,
    Last: Conversation._last,
    SkipUnless: Conversation._skip_unless,
    AtMost: Conversation._at_most,
    ExpectSilence: Conversation._expect_silence,
    ExpectStderr: Conversation._expect_stderr,
    ExpectStderrWithout: Conversation._expect_stderr_without,
    ExpectRunning: Conversation._expect_running,
    CloseStdin: Conversation._close_stdin,
    Terminate: Conversation._terminate,
    Restart: Conversation._restart,
    ExpectExit: Conversation._expect_exit,
    ExpectNoMoreOutput: Conversation._expect_no_more_output,
    ExpectNoOrphans: Conversation._expect_no_orphans,
}


def _list_mismatches(mismatches: Sequence[Mismatch]) -> str:
    more = f"; and {len(mismatches) - MISMATCHES:,} more" if len(mismatches) > MISMATCHES else ""
    return "; ".join(map(str, mismatches[:MISMATCHES])) + more


def encode(message: Any, escape: str = "") -> bytes:
    """One message as JSON without a newline. `html` escapes as Go hosts do, `ascii` as many others do."""
    text = json.dumps(message, ensure_ascii=escape == "ascii", allow_nan=False, separators=(",", ":"))
    if escape == "html":
        for char in "<>&\u2028\u2029":
            text = text.replace(char, f"\\u{ord(char):04x}")
    return text.encode()
