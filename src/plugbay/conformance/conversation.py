"""The steps of one scenario, carried out against one process.

Owns what each step does and when it counts as broken, and the host that stands by: what the plugin asks on its own is
answered when its line is read. Refuses to know which scenarios there are, how a process is started and how a report
looks.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from plugbay.conformance.dialects import Reaction
from plugbay.conformance.matchers import Mismatch, match
from plugbay.conformance.steps import (
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
    Find,
    Last,
    Send,
    SendAll,
    SendChunked,
    SendRaw,
    SkipUnless,
    Step,
    Terminate,
)
from plugbay.conformance.subject import Ended, Frame, Late, Subject
from plugbay.conformance.template import Generator, at, fill

GONE_SECONDS = 0.1
"""For the exit status of a process whose output has just ended; it only makes the report better."""

LINGER_SECONDS = 0.15
"""How long `every` looks on after its end: what a plugin does because of an event, it does a moment later."""

STDERR_LINES = 50
"""Of a plugin's stderr, that are looked at for words."""

LOOK_SECONDS = 0.01
"""Between two looks at stderr, which tells nobody that it has grown."""


class Broken(Exception):
    """The plugin did not do what the step expects. `frame` is the line that shows it, if one does."""

    def __init__(self, what: str, frame: Frame | None = None) -> None:
        super().__init__(what)
        self.frame = frame


class Nothing(Broken):
    """No line came."""


class Untried(Exception):
    """The rule cannot be tried on this plugin."""


class Until:
    """A moment, so many seconds from now."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = asyncio.get_running_loop().time() + seconds

    def left(self) -> float:
        return max(0.0, self._end - asyncio.get_running_loop().time())


class Conversation:
    """One process, one set of named values, a host that stands by, and the last line the plugin said."""

    def __init__(
        self,
        subject: Subject,
        named: Mapping[str, Any],
        generators: Mapping[str, Generator],
        reactions: Sequence[Reaction] = (),
    ) -> None:
        self._subject = subject
        self._named = dict(named)
        self._generators = generators
        self._reactions = reactions
        self.last: Frame | None = None
        """The line that was looked at last."""
        self.at = 0
        """How many steps have begun."""

    async def carry_out(self, steps: Iterable[Step]) -> None:
        """Do one step after the other; raises `Broken` or `Untried`."""
        for step in steps:
            self.at += 1
            await _DOES[type(step)](self, step)

    async def _send(self, step: Send) -> None:
        line = encode(self._filled(step.send), step.escape)
        self._subject.send(line + step.ending.encode())

    async def _send_raw(self, step: SendRaw) -> None:
        self._subject.send(str(self._filled(step.send_raw)).encode())

    async def _send_chunked(self, step: SendChunked) -> None:
        chunks = step.send_chunked
        line = encode(self._filled(chunks.message)) + b"\n"
        await self._subject.send_slowly(line, chunks.bytes, chunks.pause)

    async def _send_all(self, step: SendAll) -> None:
        for message in self._filled(step.send_all):
            self._subject.send(encode(message) + b"\n")

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
        except Nothing as reason:
            raise Untried(step.or_skip) if step.or_skip else reason from None

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
        except Nothing:
            if not came:
                raise
        if not found and step.or_skip:
            raise Untried(step.or_skip)
        self.last = end

    async def _last(self, step: Last) -> None:
        if self.last is None:
            raise Broken("it has said nothing yet")
        self._hold_to(step.last, self.last)

    async def _skip_unless(self, step: SkipUnless) -> None:
        value = None if self.last is None else self.last.value
        if match(step.skip_unless, value, self._named):
            raise Untried(step.because)

    async def _at_most(self, step: AtMost) -> None:
        until, found = Until(step.within), 0
        try:
            while found <= step.at_most:
                found += not self._mismatches(step.lines, await self._next(until))
        except Nothing:
            return
        raise Broken(f"it wrote more than {step.at_most} of them within {step.within:g} s", self.last)

    async def _expect_silence(self, step: ExpectSilence) -> None:
        try:
            frame = await self._next(Until(step.expect_silence), aside=False)
        except Nothing:
            return
        raise Broken("it wrote something although nothing was asked", frame)

    async def _expect_stderr(self, step: ExpectStderr) -> None:
        wanted, until = step.expect_stderr, Until(step.expect_stderr.within)
        while wanted.contains.lower() not in "\n".join(self._subject.child.stderr.tail(STDERR_LINES)).lower():
            if not until.left():
                raise Broken(f"{wanted.contains!r} did not come on stderr within {wanted.within:g} s")
            await asyncio.sleep(LOOK_SECONDS)

    async def _expect_running(self, step: ExpectRunning) -> None:
        status = await self._subject.exited(step.expect_running)
        if status is not None:
            raise Broken(f"it left by itself ({status.describe()})")

    async def _close_stdin(self, step: CloseStdin) -> None:
        self._subject.close_stdin()

    async def _terminate(self, step: Terminate) -> None:
        self._subject.child.terminate()

    async def _expect_exit(self, step: ExpectExit) -> None:
        wanted, seconds = step.expect_exit, self._seconds(step.expect_exit.within)
        status = await self._subject.exited(seconds)
        if status is None:
            raise Broken(f"it was still running {seconds:g} s later")
        if wanted.code is not None and status.code != wanted.code:
            raise Broken(f"it left with {status.describe()}, not with exit code {wanted.code}")

    async def _expect_no_more_output(self, step: ExpectNoMoreOutput) -> None:
        unread = self._subject.unread()
        if unread:
            count = "one more line" if len(unread) == 1 else f"{len(unread)} more lines"
            raise Broken(f"it wrote {count} than the contract has", unread[0])

    async def _expect_no_orphans(self, step: ExpectNoOrphans) -> None:
        seconds = self._seconds(step.expect_no_orphans["within"])
        left = await self._subject.exited_with_leftovers(seconds)
        if left is None:
            raise Broken(f"it was still running {seconds:g} s later")
        if left:
            raise Broken(f"it left, but not what it started: {', '.join(left)}")

    # The plugin's lines.

    async def _next(self, until: Until, aside: bool = True) -> Frame:
        """The next line, answered if the host that stands by has an answer; raises `Nothing` when none comes.

        A line for which it has one is an `aside`: no answer to what a scenario asked.
        """
        while True:
            frame = await self._subject.next_frame(until.left())
            if isinstance(frame, Late):
                raise Nothing(f"nothing came within {until.seconds:g} s")
            if isinstance(frame, Ended):
                raise Nothing(f"its output ended{await self._how_it_left()}")
            self.last = frame
            if not self._react(frame) or aside:
                return frame

    def _react(self, frame: Frame) -> bool:
        """Say what the host says to this line; False when it has nothing to do with it."""
        reaction = next((each for each in self._reactions if not match(each.when, frame.value, self._named)), None)
        if reaction is None:
            return False
        named = {**self._named, "asked": frame.value.get("id"), "asked_with": frame.value.get("params")}
        for message in reaction.says:
            self._subject.send(encode(fill(message, named, self._generators)) + b"\n")
        return True

    def _mismatches(self, pattern: Any, frame: Frame) -> list[Mismatch]:
        if frame.problem:
            raise Broken(f"not one JSON object on one line: {frame.problem}", frame)
        return match(pattern, frame.value, self._named)

    def _hold_to(self, pattern: Any, frame: Frame) -> None:
        mismatches = self._mismatches(pattern, frame)
        if mismatches:
            raise Broken("; ".join(map(str, mismatches)), frame)

    async def _how_it_left(self) -> str:
        status = await self._subject.exited(GONE_SECONDS)
        return f" ({status.describe()})" if status is not None else ""

    def _seconds(self, within: float | str) -> float:
        """As many as a step says, or as the manifest does in its place."""
        return float(self._named[within[1:]]) if isinstance(within, str) else within

    def _filled(self, template: Any) -> Any:
        return fill(template, self._named, self._generators)


_DOES: dict[type[Step], Callable[[Conversation, Any], Awaitable[None]]] = {
    Send: Conversation._send,
    SendRaw: Conversation._send_raw,
    SendChunked: Conversation._send_chunked,
    SendAll: Conversation._send_all,
    Expect: Conversation._expect,
    Find: Conversation._find,
    Every: Conversation._every,
    Last: Conversation._last,
    SkipUnless: Conversation._skip_unless,
    AtMost: Conversation._at_most,
    ExpectSilence: Conversation._expect_silence,
    ExpectStderr: Conversation._expect_stderr,
    ExpectRunning: Conversation._expect_running,
    CloseStdin: Conversation._close_stdin,
    Terminate: Conversation._terminate,
    ExpectExit: Conversation._expect_exit,
    ExpectNoMoreOutput: Conversation._expect_no_more_output,
    ExpectNoOrphans: Conversation._expect_no_orphans,
}


def encode(message: Any, escape: str = "") -> bytes:
    """One JSON line without its end. `html` escapes as Go hosts do, `ascii` as many others do."""
    text = json.dumps(message, ensure_ascii=escape == "ascii", allow_nan=False, separators=(",", ":"))
    if escape == "html":
        for char in "<>&\u2028\u2029":
            text = text.replace(char, f"\\u{ord(char):04x}")
    return text.encode()
