"""The steps of one scenario, carried out against one process.

Owns what each step does and when it counts as broken. Refuses to know which scenarios there are, how a
process is started and how a report looks.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from plugbay.conformance.matchers import match
from plugbay.conformance.scenario import (
    CloseStdin,
    Expect,
    ExpectExit,
    ExpectNoMoreOutput,
    ExpectNoOrphans,
    ExpectRunning,
    ExpectSilence,
    Send,
    SendChunked,
    SendRaw,
    SkipUnless,
    Step,
)
from plugbay.conformance.subject import Ended, Frame, Late, Subject
from plugbay.conformance.template import Generator, fill

GONE_SECONDS = 0.1
"""For the exit status of a process whose output has just ended; it only makes the report better."""


class Broken(Exception):
    """The plugin did not do what the step expects. `frame` is the line that shows it, if one does."""

    def __init__(self, what: str, frame: Frame | None = None) -> None:
        super().__init__(what)
        self.frame = frame


class Untried(Exception):
    """The rule cannot be tried on this plugin."""


class Conversation:
    """One process, one set of named values, and the last line the plugin said."""

    def __init__(self, subject: Subject, named: Mapping[str, Any], generators: Mapping[str, Generator]) -> None:
        self._subject = subject
        self._named = named
        self._generators = generators
        self._last: Frame | None = None
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
        self._subject.send(step.send_raw.encode())

    async def _send_chunked(self, step: SendChunked) -> None:
        chunks = step.send_chunked
        line = encode(self._filled(chunks.message)) + b"\n"
        await self._subject.send_slowly(line, chunks.bytes, chunks.pause)

    async def _expect(self, step: Expect) -> None:
        frame = await self._subject.next_frame(step.within)
        if isinstance(frame, Late):
            raise Broken(f"nothing came within {step.within:g} s")
        if isinstance(frame, Ended):
            raise Broken(f"its output ended{await self._how_it_left()}")
        if frame.problem:
            raise Broken(f"not one JSON object on one line: {frame.problem}", frame)
        self._last = frame
        mismatches = match(step.expect, frame.value, self._named)
        if mismatches:
            raise Broken("; ".join(map(str, mismatches)), frame)

    async def _skip_unless(self, step: SkipUnless) -> None:
        value = None if self._last is None else self._last.value
        if match(step.skip_unless, value, self._named):
            raise Untried(step.because)

    async def _expect_silence(self, step: ExpectSilence) -> None:
        frame = await self._subject.next_frame(step.expect_silence)
        if isinstance(frame, Frame):
            raise Broken("it wrote something although nothing was asked", frame)

    async def _expect_running(self, step: ExpectRunning) -> None:
        status = await self._subject.exited(step.expect_running)
        if status is not None:
            raise Broken(f"it left by itself ({status.describe()})")

    async def _close_stdin(self, step: CloseStdin) -> None:
        self._subject.close_stdin()

    async def _expect_exit(self, step: ExpectExit) -> None:
        wanted = step.expect_exit
        status = await self._subject.exited(wanted.within)
        if status is None:
            raise Broken(f"it was still running {wanted.within:g} s later")
        if wanted.code is not None and status.code != wanted.code:
            raise Broken(f"it left with {status.describe()}, not with exit code {wanted.code}")

    async def _expect_no_more_output(self, step: ExpectNoMoreOutput) -> None:
        unread = self._subject.unread()
        if unread:
            count = "one more line" if len(unread) == 1 else f"{len(unread)} more lines"
            raise Broken(f"it wrote {count} than the contract has", unread[0])

    async def _expect_no_orphans(self, step: ExpectNoOrphans) -> None:
        seconds = step.expect_no_orphans["within"]
        left = await self._subject.exited_with_leftovers(seconds)
        if left is None:
            raise Broken(f"it was still running {seconds:g} s later")
        if left:
            raise Broken(f"it left, but not what it started: {', '.join(left)}")

    async def _how_it_left(self) -> str:
        status = await self._subject.exited(GONE_SECONDS)
        return f" ({status.describe()})" if status is not None else ""

    def _filled(self, template: Any) -> Any:
        return fill(template, self._named, self._generators)


_DOES: dict[type[Step], Callable[[Conversation, Any], Awaitable[None]]] = {
    Send: Conversation._send,
    SendRaw: Conversation._send_raw,
    SendChunked: Conversation._send_chunked,
    Expect: Conversation._expect,
    SkipUnless: Conversation._skip_unless,
    ExpectSilence: Conversation._expect_silence,
    ExpectRunning: Conversation._expect_running,
    CloseStdin: Conversation._close_stdin,
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
