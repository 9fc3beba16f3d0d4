"""Questions to the client during a call: requests of their own, or a call that is put aside until it is made again.

In the handshake era a PLUGIN asks its client outright. In the modern era it may not: the call is answered with
`input_required` and parked; the client makes it again with the answers and the state it was given, and it goes on where
it was. The state is unguessable and good for that one call. Refuses to know who works on a call, and for how long.
"""

from __future__ import annotations

from plugbay.contracts.base import Misuse
from plugbay.contracts.mcp import errors, messages, questions, replies
from plugbay.contracts.mcp.calling import CALL, Sent
from plugbay.contracts.mcp.messages import MODERN, as_object
from plugbay.contracts.mcp.server import Served, ServerMachine, unanswered
from plugbay.contracts.rpc import malformed
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallFinished
from plugbay.model.operations import GetPrompt, InvokeTool, ReadResource
from plugbay.wire.strict_json import ABSENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from plugbay.contracts.rpc import IncomingRequest
    from plugbay.model.events import CallId, Event
    from plugbay.wire.strict_json import Codec

MAX_PARKED = 64
"""Calls that wait for their client to come back; it need not, so the oldest gives way."""

INTERRUPTIBLE = (InvokeTool, ReadResource, GetPrompt)
"""Calls that may be answered with questions."""

PARKED = object()
"""The id of a call that is parked: no request of the client's waits for it."""


class Parked:
    """A call that was put aside: the number it arrived under, and the call."""

    __slots__ = ("number", "served")

    def __init__(self, number: CallId, served: Served) -> None:
        self.number = number
        self.served = served


class ParkingMachine(ServerMachine):
    """What a plugin asks."""

    __slots__ = ("_entropy", "_parked")

    def __init__(
        self,
        role: str,
        codec: Codec,
        era: str,
        client: Mapping[str, Any] | None,
        offers: frozenset[str],
        server: messages.Server,
        entropy: Callable[[], bytes] | None,
    ) -> None:
        super().__init__(role, codec, era, client, offers, server)
        self._entropy = entropy
        self._parked: dict[str, Parked] = {}
        """Calls that were put aside, by the state their client was given; the oldest first."""

    def _fresh(self) -> str:
        if self._entropy is None:
            raise Misuse("mcp plugin: a server that asks its client needs a source of entropy")
        return self._entropy().hex()

    # Asking.

    def _ask_client(self, id: CallId, op: Any, within: CallId | None) -> Failure | None:
        if type(op) not in questions.METHODS:
            raise Misuse(f"mcp cannot ask {type(op).__name__} from {self.role}")
        number = self._during() if within is None else within
        served = None if number is None else self._incoming.get(number)
        caller = served.caller if isinstance(served, Served) else self._session
        if caller is None:
            return Failure(Code.UNAVAILABLE, "there is no client to ask")
        missing = questions.missing(op, caller.capabilities)
        if missing is not None:
            what = f"the client does not offer {', '.join(missing)}"
            return Failure(Code.CAPABILITY_NOT_ALLOWED, what, detail={"requires": missing})
        if caller.era == MODERN:
            return self._question(id, op, number, served)
        method, params = questions.written(op, self._fresh(), modern=False)
        members = self._json(params)
        if isinstance(members, Failure):
            return members
        return self._put(Sent(CALL, method, members[1:-1], call=id, op=op))

    def _during(self) -> CallId | None:
        """The call during which something is asked, where nobody says which: the latest that may be interrupted.

        An answer finds its question whichever call carries it.
        """
        open = [(number, asked) for number, asked in self._incoming.items() if isinstance(asked, Served)]
        fit = [(number, asked) for number, asked in open if isinstance(asked.op, INTERRUPTIBLE)]
        best = [number for number, asked in fit if not asked.is_parked] or [number for number, _ in fit]
        return best[-1] if best else None

    def _question(self, id: CallId, op: Any, number: CallId | None, served: IncomingRequest | None) -> Failure | None:
        """Ask with the answer to a call; while that is parked, with its next one."""
        if number is None or not isinstance(served, Served) or not isinstance(served.op, INTERRUPTIBLE):
            return Failure(Code.UNAVAILABLE, "in this revision of MCP a client is asked only during a call")
        encoded = self._json(questions.written(op, "", modern=True)[1])
        if isinstance(encoded, Failure):
            return encoded
        served.questions[f"q{id}"] = (id, op)
        if served.is_parked:
            return None
        failure = self._park(number, served)
        if failure is not None:
            del served.questions[f"q{id}"]
        return failure

    def _park(self, number: CallId, served: Served) -> Failure | None:
        state = self._fresh()
        wanted = {
            key: dict(zip(("method", "params"), questions.written(op, "", modern=True), strict=True))
            for key, (_, op) in served.questions.items()
        }
        said = {"resultType": replies.INPUT_REQUIRED, "inputRequests": wanted, "requestState": state}
        failure = self._write_result(served.id, self._json({**said, "_meta": {messages.SERVER: self.server.info()}}))
        if failure is None:
            self._parked[state] = Parked(number, served)
            served.is_parked = True
            served.id = PARKED  # type: ignore[assignment]
        return failure

    # The call is made again.

    def _serve(self, served: Served, params: dict[str, Any]) -> list[Event]:
        over = self._make_room()
        state = params.get("requestState")
        if served.caller.era != MODERN or state is None:
            return over + super()._serve(served, params)
        parked = self._parked.get(state) if isinstance(state, str) else None
        if parked is None or not _is_same(parked.served, served):
            self._write_error(
                served.id, errors.INVALID_PARAMS, "requestState belongs to no call that waits, or to another"
            )
            return over
        del self._parked[state]
        return over + self._resume(parked, served, as_object(params.get("inputResponses")))

    def _resume(self, parked: Parked, again: Served, answers: dict[str, Any]) -> list[Event]:
        served = parked.served
        served.id, served.token, served.caller = again.id, again.token, again.caller
        served.is_parked = False
        events: list[Event] = []
        for key in [key for key in served.questions if key in answers]:
            call, op = served.questions.pop(key)
            events.append(_answer(call, op, answers[key]))
        if served.outcome is not None:
            self._incoming[parked.number] = served
            self.finish(parked.number, *served.outcome)
            return events + unanswered(served)
        unasked = self._park(parked.number, served) if served.questions else None
        if unasked is not None:
            events += [CallFinished(call, None, unasked) for call, _ in served.questions.values()]
            served.questions.clear()
        return events

    def _make_room(self) -> list[Event]:
        events: list[Event] = []
        while len(self._parked) > MAX_PARKED:
            parked = self._parked.pop(next(iter(self._parked)))
            is_over = self._incoming.pop(parked.number, None) is None
            events += unanswered(parked.served) if is_over else self._drop(parked.number, parked.served)
        return events

    # How it ends.

    def finish(self, id: CallId, value: Any = None, failure: Failure | None = None) -> None:
        served = self._incoming.get(id)
        if not isinstance(served, Served):
            super().finish(id, value, failure)
        elif served.is_parked:
            served.outcome = (value, failure)  # until the client comes back for it
            del self._incoming[id]
        else:
            super().finish(id, value, failure)
            if failure is None:
                self._settled(served.op)

    def cancel(self, id: CallId, reason: str) -> None:
        for asked in self._incoming.values():
            if isinstance(asked, Served):
                asked.questions.pop(f"q{id}", None)
        super().cancel(id, reason)

    def _client_answered(self, sent: Sent, message: Any, frame: bytes) -> list[Event]:
        """Of the handshake era: the answer to a question that was asked outright."""
        assert sent.call is not None
        if message.error is not ABSENT:
            failure = errors.from_error(type(sent.op), sent.method, message.error)
            return [CallFinished(sent.call, None, failure)]
        if message.result is ABSENT:
            what = f"the answer to {sent.method} has neither a result nor an error"
            return [CallFinished(sent.call, None, malformed(what, frame))]
        return [_answer(sent.call, sent.op, self.codec.load(message.result))]


def _answer(call: CallId, op: Any, said: Any) -> CallFinished:
    value = questions.answered(op, said)
    if isinstance(value, str):
        what = f"the answer to {questions.METHODS[type(op)]}: {value}"
        return CallFinished(call, None, Failure(Code.MALFORMED_RESPONSE, what))
    return CallFinished(call, value)


def _is_same(parked: Served, again: Served) -> bool:
    """Whether a call that comes with a state is the one that was given it."""
    fields = ("tool", "prompt", "uri", "input")
    return type(parked.op) is type(again.op) and all(
        getattr(parked.op, field, None) == getattr(again.op, field, None) for field in fields
    )
