"""The MCP conversation, both roles and both eras: who is spoken to, and what may happen when.

Owns the table of states and which half of the conversation each message belongs to. Refuses to know what a call means;
the halves do: `welcoming.py` and `client.py` for a HOST, `server.py` and `parking.py` for a PLUGIN.
"""

from __future__ import annotations

from plugbay.contracts.base import Misuse, Role, Traffic
from plugbay.contracts.mcp import errors, messages, questions, replies, requests
from plugbay.contracts.mcp.client import Input
from plugbay.contracts.mcp.messages import HANDSHAKE, MODERN, as_object
from plugbay.contracts.mcp.parking import ParkingMachine
from plugbay.contracts.mcp.server import Served
from plugbay.contracts.rpc import CLOSED, CLOSING, FAILED, GREETING, READY, START, noise
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallFinished
from plugbay.model.operations import ChangeResource, InvokeTool, OfferExports, WriteLog
from plugbay.wire.strict_json import ABSENT, Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, ClassVar

    from plugbay.contracts.mcp.calling import Sent
    from plugbay.contracts.rpc import IncomingRequest
    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import HostOp, PluginOp
    from plugbay.wire.strict_json import Codec

DISCOVERING, LISTING = "discovering", "listing"
"""HOST: it has opened in the modern era; it is welcome, and reads what the server offers."""

_TOLD = frozenset({OfferExports, ChangeResource, WriteLog})


def _transitions() -> dict[tuple[str, str, str], str]:
    """There is no word for good-bye: a host closes the server's input, and the server leaves."""
    greeting, known = (GREETING, DISCOVERING), (LISTING, READY)
    host = {
        (START, "greet"): GREETING,
        (GREETING, "discover"): DISCOVERING,
        (DISCOVERING, "initialize"): GREETING,
        **{(state, "welcome"): LISTING for state in greeting},
        (LISTING, "hello"): READY,
        **{(state, "violation"): FAILED for state in (*greeting, *known)},
        (START, "close"): CLOSED,
        **{(state, "close"): CLOSING for state in (*greeting, *known, CLOSING)},
        (CLOSING, "eof"): CLOSED,
        **{(state, "close"): CLOSED for state in (CLOSED, FAILED)},
    }
    plugin = {
        (START, "greet"): GREETING,
        (GREETING, "hello"): READY,
        **{(state, "eof"): CLOSED for state in (GREETING, READY)},
        **{(state, "close"): CLOSED for state in (START, GREETING, READY, CLOSED)},
    }
    return {
        **{(Role.HOST, *key): state for key, state in host.items()},
        **{(Role.PLUGIN, *key): state for key, state in plugin.items()},
    }


class McpMachine(ParkingMachine):
    """One MCP conversation. HOST knows what the operator granted (`offers`); PLUGIN knows who it is (`server`)."""

    __slots__ = ()

    CONTRACT: ClassVar[str] = "mcp"
    TRANSITIONS: ClassVar[dict[tuple[str, str, str], str]] = _transitions()
    SUPPORTS: ClassVar[frozenset[type]] = requests.SUPPORTS
    TRAFFIC: ClassVar[Traffic] = Traffic()
    HELLO: ClassVar[str] = "the greeting"
    GOOD_BYE_IS_ANSWERED: ClassVar[bool] = False

    def __init__(
        self,
        role: str,
        codec: Codec,
        *,
        era: str = HANDSHAKE,
        client: Mapping[str, Any] | None = None,
        offers: frozenset[str] = frozenset(),
        server: messages.Server | None = None,
        entropy: Callable[[], bytes] | None = None,
    ) -> None:
        """HOST: `era` to open in, who the `client` is, what it `offers` of sampling, elicitation and roots.

        PLUGIN: who the `server` is; `entropy` for the states of calls that wait for their client, 16 bytes or more.
        """
        super().__init__(role, codec, era, client, offers, server or messages.Server("", ""), entropy)

    # What the peer does.

    def _take(self, message: Any, line: bytes) -> list[Event]:
        """What a message is: a method makes it a request or a notification; else a number makes it an answer."""
        method, id = message.method, message.id
        if not (isinstance(method, str) and method):
            return self._take_answer(id, message, line)
        if not messages.wants_answer(method, id):
            id = ABSENT
        if id is not ABSENT and type(id) not in messages.IDS:
            return noise(line, "a request whose id is neither a number nor a string")
        params = as_object(None if message.params is ABSENT else self.codec.load(message.params))
        if id is ABSENT:
            return self._take_notification(method, params, line)
        if self.role == Role.HOST:
            return self._asked_by_server(id, method, params, line)
        return self._asked_by_client(id, method, params)

    def _take_answer(self, id: Any, message: Any, line: bytes) -> list[Event]:
        sent = self._outstanding.get(id) if type(id) is int and message.error is ABSENT else None
        if sent is not None and type(sent.op) is InvokeTool and replies.is_plain(message.result, line):
            del self._outstanding[id], self._wires[sent.call]
            return [CallFinished(sent.call, message.result)]
        if message.error is None and message.result is not ABSENT:
            message.error = ABSENT  # some write every key there is
        says_something = message.result is not ABSENT or message.error is not ABSENT
        if type(id) is int and (says_something or id in self._outstanding):
            return self._dispatch_answer(id, message, line)
        return noise(line, "neither a request, a notification nor an answer to one")

    def _take_notification(self, name: str, params: dict[str, Any], line: bytes) -> list[Event]:
        if name == messages.PROGRESS:
            return self._take_progress(params, line)
        if self.role == Role.HOST:
            return self._told_by_server(name, params, line)
        return self._told_by_client(name, params, line)

    def _concluded(self, sent: Sent, message: Any, frame: bytes) -> list[Event]:
        if self.role == Role.PLUGIN:
            return self._client_answered(sent, message, frame)
        return super()._concluded(sent, message, frame)

    # What we do.

    def call(self, id: CallId, op: PluginOp | HostOp, within: CallId | None = None) -> Failure | None:
        """`within`: PLUGIN only, the request of the client's during which it is asked something."""
        refusal = None if self.state == READY else self._refuse_unless_ready()
        if refusal is not None:
            return refusal
        return self._call_server(id, op) if self.role == Role.HOST else self._ask_client(id, op, within)

    def notify(self, op: PluginOp | HostOp) -> Failure | None:
        """PLUGIN: what is offered, what a resource holds, a line for the log. Where nobody listens, nothing is sent."""
        if self.role == Role.HOST or type(op) not in _TOLD:
            raise Misuse(f"mcp cannot tell {type(op).__name__} from {self.role}")
        return self._refuse_unless_ready() or self._tell_client(op)

    def finish(self, id: CallId, value: Any = None, failure: Failure | None = None) -> None:
        asked = self._incoming.get(id)
        if isinstance(asked, Input):
            del self._incoming[id]
            self._input(asked, value, failure)
        elif isinstance(asked, Served) and failure is not None and errors.is_for_the_model(type(asked.op), failure):
            super().finish(id, errors.to_result(failure))
        else:
            super().finish(id, value, failure)

    def _encode_result(self, asked: IncomingRequest, value: Any) -> bytes | Failure:
        if not isinstance(asked, Served):
            said = questions.result(asked.op, value)
            return said if isinstance(said, Failure) else self._json(said)
        try:
            result = replies.result(asked.op, value, self.codec)
        except Unencodable as error:
            return Failure(Code.INVALID_INPUT, f"it cannot be sent as JSON: {error}")
        if asked.caller.era == MODERN:
            result = replies.in_modern(result, self.server.info(), cacheable=replies.is_cacheable(asked.op))
        return self._json(result)

    def _explain_unsent(self, problem: Failure) -> Failure:
        """Who asked must learn that the answer is too long, for a shorter one may do."""
        code = problem.code if problem.code == Code.FRAME_TOO_LARGE else Code.INTERNAL
        return Failure(code, super()._explain_unsent(problem).message, detail=problem.detail)

    def _encode_failure(self, asked: IncomingRequest, failure: Failure) -> tuple[int, str, dict[str, Any] | None]:
        modern = isinstance(asked, Served) and asked.caller.era == MODERN
        return errors.to_error(type(asked.op), failure, modern=modern)

    def progress(self, id: CallId, item: Any) -> Failure | None:
        """Said to a client that wants to hear it. What has no number of its own is counted."""
        served = self._incoming.get(id)
        if not isinstance(served, Served) or served.token is None or served.is_parked:
            return None
        served.steps += 1
        said = item if isinstance(item, dict) and "progress" in item else replies.step(served.steps, item)
        return self._write_notification(messages.PROGRESS, self._json({messages.TOKEN: served.token, **said}))

    def close(self, reason: str) -> None:
        """A plugin ends the subscriptions of its client in good order; a host has nothing to say."""
        for id in self._listeners:
            self._answer(id, replies.ended(id))
            self._write_notification(messages.CANCELLED, self._json({"requestId": id}))
        self._listeners.clear()
        self._listing = None
        self._step("close")
