"""`MockPlugin`: answers a live host from a recording, in place of the recorded plugin.

A live request matches a recorded one with the same name and the same parameters, except for values that hosts change in
every run; with loose matching the name is enough. A request may be repeated. Nothing is invented: a request that was
not recorded, or was redacted, gets the contract's own error. The class does no I/O and has no clock; `serve` moves its
bytes, without an event loop or a thread, because a mock starts as often as the plugin that it replaces.
"""

from __future__ import annotations

import difflib
import heapq
import itertools
import os
import select
import time
from collections.abc import Callable
from typing import Any

from plugbay.conformance.replay.differences import IgnoredPaths, differences
from plugbay.conformance.replay.exchanges import (
    ALLOW,
    AwaitFrame,
    CancelRequest,
    Exchange,
    ExitProcess,
    Reaction,
    RecordedFrame,
    SendFrame,
    UnusableFrame,
    WriteStderr,
    check,
    contract_of,
    exchanges,
)
from plugbay.conformance.replay.volatile import apply_swaps, find_swaps
from plugbay.contracts.base import Role
from plugbay.contracts.frames import ANSWER, CANCEL, GREETING, NOTICE, PIECE, REQUEST, Turn
from plugbay.link.recording import Recording
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import Malformed

MAX_DIFFERENCES = 3
"""Differences from the nearest recorded question that are named."""


class _Playing:
    """An exchange while it is played for a live host."""

    def __init__(self, exchange: Exchange, turn: Turn | None, swaps: dict[str, str], now: float) -> None:
        self.exchange = exchange
        self.turn = turn
        self.swaps = swaps
        self.next = 0
        self.answered_ids: set[Any] = set()
        self.is_cancelled = False
        self.played_at = now
        self.recorded_at = 0.0 if exchange.cause is None else exchange.cause.frame.t


class MockPlugin:
    """Feed it the bytes of the host, send `outgoing`, and call `tick` at `due`."""

    def __init__(
        self,
        recording: Recording,
        complain: Callable[[str], None],
        *,
        loose: bool = False,
        allow_redacted: bool = False,
        speed: float = 0.0,
    ) -> None:
        """`complain`: given lines for stderr, the plugin's and ours. `speed`: 1 as it was, 2 twice as fast, 0 now."""
        contract = contract_of(recording)
        self._rules = contract.frame_rules
        self._framing = contract.framing_of(Role.HOST)
        self._codec = MsgspecCodec()
        self._exchanges = exchanges(recording)
        self._complain = complain
        self._loose = loose
        self._allow_redacted = allow_redacted
        self._speed = speed
        self._used: set[int] = set()
        self._out: list[bytes] = []
        self._due: list[tuple[float, int, _Playing]] = []
        self._order = itertools.count()
        self._own_ids = itertools.count(1)
        self._asked: dict[Any, tuple[_Playing, RecordedFrame]] = {}
        self._playing: dict[Any, _Playing] = {}
        self.left: int | None = None
        """The exit status, once the recording ends the process."""

    # For `serve`.

    def start(self, now: float) -> None:
        """Send the frames that the plugin sent before the first request."""
        for first in self._exchanges[:1]:
            try:
                self._check(first)
            except UnusableFrame as why:
                self._note(str(why))
                self.left = 1
            self._go_on(_Playing(first, None, {}, now), now)

    def feed(self, data: bytes, now: float) -> None:
        for body, problem in self._framing.feed(data):
            try:
                if problem:
                    raise Malformed(problem)
                frame = self._codec.decode(body)
            except Malformed as error:
                self._note(f"the host sent something that is not a message: {error}")
                continue
            self._take(frame, now)

    def tick(self, now: float) -> None:
        """Do what is due."""
        while self._due and self._due[0][0] <= now:
            self._go_on(heapq.heappop(self._due)[2], now, waited=True)

    @property
    def due(self) -> float | None:
        """When the next reaction is due; None when it depends on the host."""
        return self._due[0][0] if self._due else None

    def outgoing(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _note(self, text: str) -> None:
        self._complain(f"replay: {text}")

    # Frames of the host.

    def _take(self, frame: Any, now: float) -> None:
        turn = self._rules.turn(Role.HOST, frame)
        if turn.kind == ANSWER:
            self._was_answered(turn, frame, now)
        elif turn.kind == CANCEL:
            self._cancel(turn, now)
        elif turn.kind in (REQUEST, NOTICE):
            self._was_told(turn, frame, now)

    def _was_told(self, turn: Turn, frame: Any, now: float) -> None:
        try:
            exchange = self._recorded(turn, frame)
            self._check(exchange)
        except UnusableFrame as why:
            self._refuse(turn, str(why))
            return
        assert exchange.cause is not None
        swaps = find_swaps(exchange.cause.frame.value, frame, self._rules.volatile)
        playing = _Playing(exchange, turn, swaps, now)
        if turn.kind == REQUEST:
            self._playing[turn.id] = playing
        self._go_on(playing, now)

    def _was_answered(self, turn: Turn, frame: Any, now: float) -> None:
        playing, said = self._asked.pop(turn.id, (None, None))
        if playing is None or said is None:
            return
        recorded = _reply_to(playing.exchange, said.turn.id)
        if recorded is not None:
            passed = IgnoredPaths((*self._rules.volatile, *recorded.frame.redacted), shapes=True)
            found = differences(recorded.frame.value, frame, passed)
            if found:
                self._note(f"the host answers {said.turn.name} differently than in line {recorded.line}: {found[0]}")
        playing.answered_ids.add(said.turn.id)
        self._go_on(playing, now)

    def _cancel(self, turn: Turn, now: float) -> None:
        playing = self._playing.get(turn.id)
        if playing is not None:
            playing.is_cancelled = True
            self._go_on(playing, now)

    # Matching a live request with a recorded one.

    def _recorded(self, turn: Turn, frame: Any) -> Exchange:
        causes = [each.cause for each in self._exchanges if each.cause is not None]
        same_name = [
            (at, each.cause)
            for at, each in enumerate(self._exchanges)
            if each.cause is not None and (each.cause.turn.kind, each.cause.turn.name) == (turn.kind, turn.name)
        ]
        fitting = same_name if self._loose else [(at, cause) for at, cause in same_name if self._fits(cause, frame)]
        if not fitting:
            raise UnusableFrame(self._why_not(turn, frame, [cause for _, cause in same_name], causes))
        at = next((at for at, _ in fitting if at not in self._used), fitting[-1][0])
        self._used.add(at)
        return self._exchanges[at]

    def _fits(self, cause: RecordedFrame, frame: Any) -> bool:
        if cause.frame.raw is not None or (cause.frame.redacted and not self._allow_redacted):
            return False
        return not differences(cause.frame.value, frame, IgnoredPaths((*self._rules.volatile, *cause.frame.redacted)))

    def _why_not(self, turn: Turn, frame: Any, same_name: list[RecordedFrame], causes: list[RecordedFrame]) -> str:
        if not same_name:
            names = list(dict.fromkeys(cause.turn.name for cause in causes if cause.turn.kind == turn.kind))
            near = difflib.get_close_matches(turn.name, names, n=1)
            nearest = f"the nearest is {near[0]}" if near else f"there is {', '.join(names) or 'nothing'}"
            return f"{turn.name} was not recorded; {nearest}"
        passed = IgnoredPaths(self._rules.volatile)
        gaps = [differences(cause.frame.value, frame, passed) for cause in same_name]
        found, cause = min(zip(gaps, same_name, strict=True), key=lambda pair: len(pair[0]))
        if cause.frame.cut:
            return f"{turn.name} in line {cause.line} was cut, so it cannot be compared"
        places = [place for place in cause.frame.redacted if any(each.path.startswith(place) for each in found)]
        if places and not self._allow_redacted:
            return f"{turn.name} in line {cause.line} was redacted at {places[0]}, so it cannot be compared; {ALLOW}"
        listed = "; ".join(map(str, found[:MAX_DIFFERENCES]))
        return f"{turn.name} was not recorded with these parameters; the nearest is in line {cause.line}: {listed}"

    def _check(self, exchange: Exchange) -> None:
        for each in exchange.reactions:
            if isinstance(each, SendFrame):
                check(each.said, self._allow_redacted, self._note)

    def _refuse(self, turn: Turn, why: str) -> None:
        self._note(why)
        if turn.kind != REQUEST:
            return
        if turn.id == GREETING:
            self.left = 1  # these contracts have no word for a greeting that is refused
        else:
            self._send(self._rules.refusal(turn, f"replay: {why}"))

    # Reactions.

    def _go_on(self, playing: _Playing, now: float, *, waited: bool = False) -> None:
        reactions = playing.exchange.reactions
        while playing.next < len(reactions) and self.left is None:
            reaction = reactions[playing.next]
            if not _may(reaction, playing):
                return
            at = playing.played_at + self._delay(_time_of(reaction) - playing.recorded_at)
            if at > now and not waited:
                heapq.heappush(self._due, (at, next(self._order), playing))
                return
            waited = False
            playing.next += 1
            playing.played_at, playing.recorded_at = now, _time_of(reaction)
            self._do(reaction, playing)

    def _delay(self, seconds: float) -> float:
        return max(0.0, seconds) / self._speed if self._speed else 0.0

    def _do(self, reaction: Reaction, playing: _Playing) -> None:
        if isinstance(reaction, SendFrame):
            self._say(reaction.said, playing)
        elif isinstance(reaction, WriteStderr):
            self._complain(reaction.text)
        elif isinstance(reaction, ExitProcess):
            self.left = reaction.code

    def _say(self, said: RecordedFrame, playing: _Playing) -> None:
        frame, turn = said.frame, said.turn
        if frame.raw is not None:
            self._out.append(self._framing.wrap(frame.raw))
            return
        value = apply_swaps(frame.value, playing.swaps)
        if turn.kind == REQUEST:
            own = next(self._own_ids)
            self._asked[own] = (playing, said)
            value = self._rules.with_id(value, own)
        elif turn.kind in (ANSWER, PIECE) and playing.turn is not None and turn.id != GREETING:
            value = self._rules.with_id(value, playing.turn.id)
        self._send(value)

    def _send(self, value: Any) -> None:
        self._out.append(self._framing.wrap(self._codec.encode(value)))


def _may(reaction: Reaction, playing: _Playing) -> bool:
    """Whether the condition of a reaction is met."""
    if isinstance(reaction, AwaitFrame):
        return reaction.said.turn.id in playing.answered_ids
    return playing.is_cancelled or not isinstance(reaction, CancelRequest)


def _time_of(reaction: Reaction) -> float:
    return reaction.said.frame.t if isinstance(reaction, SendFrame | AwaitFrame) else reaction.t


def _reply_to(exchange: Exchange, id: Any) -> RecordedFrame | None:
    replies = (each.said for each in exchange.reactions if isinstance(each, AwaitFrame))
    return next((said for said in replies if said.turn.id == id), None)


READ_SIZE = 65_536
"""One pipe's worth."""


def serve(mock: MockPlugin, source: int = 0, sink: int = 1) -> int:
    """Answer the host until its output ends; returns the exit status."""
    mock.start(time.monotonic())
    while _send(mock.outgoing(), sink) and mock.left is None:
        wait = None if mock.due is None else max(0.0, mock.due - time.monotonic())
        if select.select([source], [], [], wait)[0]:
            data = os.read(source, READ_SIZE)
            if not data:
                break
            mock.feed(data, time.monotonic())
        mock.tick(time.monotonic())
    return mock.left or 0


def _send(data: bytes, sink: int) -> bool:
    """Write all bytes; False when the reader is gone."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(sink, view) :]
    except BrokenPipeError:
        return False
    return True
