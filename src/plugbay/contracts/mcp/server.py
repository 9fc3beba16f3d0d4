"""`ServerMachine`: the PLUGIN role of MCP, in both eras.

It is greeted, serves its lists, is called, and tells its clients what changed. A client is identified by its session
(handshake era) or by what each request says in `_meta` (modern era).

During a call a server may ask its client. In the handshake era it sends a request. In the modern era it must not: the
call is answered with `input_required` and parked; the client repeats the call with the answers and the state it was
given, and the call goes on. That state is unguessable and valid for this one call.
"""

from __future__ import annotations

from plugbay.contracts.base import Misuse, Role
from plugbay.contracts.mcp import client_features, errors, messages, requests
from plugbay.contracts.mcp.listing import build_page
from plugbay.contracts.mcp.machine import CALL, McpMachine, SentRequest
from plugbay.contracts.mcp.messages import HANDSHAKE, LISTS, MODERN, MODERN_REVISIONS, REVISIONS, as_object
from plugbay.contracts.rpc import READY, IncomingRequest, malformed, noise
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallFinished, CancelArrived, Notified, Ready
from plugbay.model.operations import (
    ChangeResource,
    ChangeRoots,
    GetPrompt,
    InvokeTool,
    OfferExports,
    ReadResource,
    SetLogLevel,
    WatchResource,
    WriteLog,
)
from plugbay.model.values import Value
from plugbay.wire.lines import HEAD_BYTES
from plugbay.wire.strict_json import ABSENT, Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from plugbay.contracts.rpc import Id
    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import HostOp, PluginOp
    from plugbay.wire.strict_json import Codec

MAX_LISTENERS = 64
"""Subscriptions of one client at a time; it needs one, and replaces it when it wants to hear of more."""

MAX_WATCHED = 1_000
"""Resources in the subscriptions of a session or a request; the plugin is asked to watch each of them."""

MAX_PARKED = 64
"""Calls that wait for their client to repeat them. A client need not come back, so the oldest is dropped."""

INTERRUPTIBLE = (InvokeTool, ReadResource, GetPrompt)
"""Calls that may be answered with questions."""

PARKED = object()
"""The id of a parked call: no request of the client waits for it."""

_LISTS = {listed.method: listed for listed in LISTS}
_MODERN_ONLY = frozenset({messages.DISCOVER, messages.LISTEN})
_FLAGS = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}
_NOTIFICATIONS = frozenset({OfferExports, ChangeResource, WriteLog})


class Caller(Value):
    """The client that sent a request: era, revision, `clientInfo`, capabilities, and the log level it asks for."""

    __slots__ = ("capabilities", "client", "era", "log_level", "version")

    def __init__(
        self, era: str, version: str, client: dict[str, Any], capabilities: dict[str, Any], log_level: str = ""
    ) -> None:
        self.era = era
        self.version = version
        self.client = client
        self.capabilities = capabilities
        self.log_level = log_level

    def build_hello(self) -> dict[str, Any]:
        """The facts of `Ready`."""
        return {
            "era": self.era,
            "protocol_version": self.version,
            "client": self.client,
            "capabilities": self.capabilities,
        }


class ClientRequest(IncomingRequest):
    """A call of the client that waits for our answer."""

    __slots__ = ("caller", "is_parked", "outcome", "questions", "steps", "token")

    def __init__(self, id: Id, op: Any, caller: Caller, token: Any) -> None:
        super().__init__(id, op)
        self.caller = caller
        self.token = token if type(token) in (int, str) else None
        self.steps = 0
        self.is_parked = False
        """Whether the client was asked something and has to repeat the call."""
        self.questions: dict[str, tuple[CallId, Any]] = {}
        """The open questions to the client, by key: our call, and the operation."""
        self.outcome: tuple[Any, Failure | None] | None = None
        """The result, if the handler ended while the call was parked."""


class ServerMachine(McpMachine):
    """One MCP conversation as its server. `server`: name and offer; `entropy`: 16 bytes or more for parked calls."""

    __slots__ = tuple(
        "_entropy _generation _listeners _lowest _own _parked _session _subscribed _tools offer server".split()
    )

    def __init__(
        self,
        codec: Codec,
        *,
        server: messages.Server | None = None,
        entropy: Callable[[], bytes] | None = None,
    ) -> None:
        super().__init__(Role.PLUGIN, codec)
        self.server = server = server or messages.Server("", "")
        self.offer = {name: [dict(entry) for entry in entries] for name, entries in server.offer.items()}
        self._tools = frozenset(tool["name"] for tool in self.offer["tools"])
        self._session: Caller | None = None
        """The client that sent `initialize`."""
        self._subscribed: set[str] = set()
        self._lowest = "debug"
        self._listeners: dict[Any, dict[str, Any]] = {}
        """Subscriptions of the modern era, by the id of their request: the changes that each receives."""
        self._generation = 0
        """Counts the offers, so that a cursor of an older one is recognised."""
        self._entropy = entropy
        self._parked: dict[str, tuple[CallId, ClientRequest]] = {}
        """Parked calls and their numbers, by the state their client was given; the oldest first."""
        self._own: dict[str, Callable[[Id, dict[str, Any], Caller], None]] = {
            messages.INITIALIZE: self._answer_initialize,
            messages.PING: self._answer_ping,
            messages.DISCOVER: self._answer_discover,
        }

    @property
    def session_has_roots(self) -> bool:
        """Whether the client can be asked for its roots at any time; in the modern era it can be during calls only."""
        return self._session is not None and isinstance(self._session.capabilities.get("roots"), dict)

    # Requests.

    def _take_request(self, id: Id, name: str, params: dict[str, Any], line: bytes) -> list[Event]:
        caller = self._identify_caller(id, name, params)
        if caller is None:
            return []
        met: list[Event] = []
        if name != messages.PING and self._may("hello"):
            self._step("hello")
            met.append(Ready(caller.build_hello()))
        listed, own = _LISTS.get(name), self._own.get(name)
        if listed is not None and listed.capability in self.server.capabilities:
            self._answer_list(id, listed, params, caller)
        elif own is not None and (caller.era == MODERN or name not in _MODERN_ONLY):
            own(id, params, caller)
        elif name == messages.LISTEN and caller.era == MODERN:
            return met + self._add_listener(id, params)
        else:
            return met + self._take_call(id, name, params, caller)
        return met

    def _identify_caller(self, id: Id, name: str, params: dict[str, Any]) -> Caller | None:
        """The client of a request; None when it is missing or invalid, which is answered here."""
        meta = as_object(params.get("_meta"))
        if name == messages.INITIALIZE:
            return self._read_session(params)
        if messages.VERSION in meta or name in _MODERN_ONLY:
            return self._read_modern_caller(id, meta)
        if name == messages.PING or self._session is not None:
            return self._session or Caller(HANDSHAKE, REVISIONS[0], {}, {})
        why = f"{name}: send initialize first, or set the MCP revision in _meta"
        self._write_error(id, errors.INVALID_PARAMS, why)
        return None

    def _read_session(self, params: dict[str, Any]) -> Caller:
        asked = params.get("protocolVersion")
        version = asked if isinstance(asked, str) and asked in REVISIONS else REVISIONS[0]
        return Caller(HANDSHAKE, version, as_object(params.get("clientInfo")), as_object(params.get("capabilities")))

    def _read_modern_caller(self, id: Id, meta: dict[str, Any]) -> Caller | None:
        version, capabilities, level = (
            meta.get(key) for key in (messages.VERSION, messages.CAPABILITIES, messages.LOG_LEVEL)
        )
        if not isinstance(version, str) or not isinstance(capabilities, dict):
            needed = f"{messages.VERSION} (a string) and {messages.CAPABILITIES} (an object)"
            self._write_error(id, errors.INVALID_PARAMS, f"_meta must have {needed}")
        elif version not in MODERN_REVISIONS:
            data = {"supported": [*MODERN_REVISIONS, *REVISIONS], "requested": version}
            self._write_error(id, errors.UNSUPPORTED_VERSION, "Unsupported protocol version", data)
        elif level is not None and level not in messages.LEVELS:
            self._write_error(
                id, errors.INVALID_PARAMS, f"{messages.LOG_LEVEL} must be one of {', '.join(messages.LEVELS)}"
            )
        else:
            client = as_object(meta.get(messages.CLIENT))
            return Caller(MODERN, version, client, capabilities, level or "")
        return None

    def _take_call(self, id: Id, name: str, params: dict[str, Any], caller: Caller) -> list[Event]:
        needed = requests.METHOD_CAPABILITIES.get(name)
        settings = self.server.capabilities.get(needed or "")
        unknown = (caller.era == MODERN and name in requests.HANDSHAKE_ONLY) or not isinstance(settings, dict)
        unwatchable = name in requests.WATCHING and as_object(settings).get("subscribe") is not True
        op = None if unknown or unwatchable else requests.read_request(name, params)
        if op is None:
            self._write_error(id, errors.METHOD_NOT_FOUND, f"method not found: {name}")
            return []
        if isinstance(op, str):
            self._write_error(id, errors.INVALID_PARAMS, f"{name}: {op}")
            return []
        if isinstance(op, InvokeTool) and op.tool not in self._tools:
            self._write_error(id, errors.INVALID_PARAMS, f"unknown tool: {op.tool}")
            return []
        if isinstance(op, WatchResource) and op.wanted and len(self._subscribed) >= MAX_WATCHED:
            self._write_error(
                id, errors.INTERNAL_ERROR, f"{MAX_WATCHED:,} resources are already watched for this client"
            )
            return []
        token = as_object(params.get("_meta")).get(messages.TOKEN)
        request = ClientRequest(id, op, caller, token)
        dropped = self._drop_oldest_parked()
        state = params.get("requestState")
        if caller.era != MODERN or state is None:
            return dropped + self._accept_request(request)
        return dropped + self._resume(request, state, as_object(params.get("inputResponses")))

    def _refuse_unreadable(self, head: bytes, why: str) -> None:
        """Answer with an error, if the id of the request can be seen: its client would wait for ever."""
        id = requested_id(head)
        if id is not None:
            self._write_error(id, errors.INVALID_REQUEST, f"the request cannot be read: {why}")

    # What the machine answers itself.

    def _answer_initialize(self, id: Id, params: dict[str, Any], caller: Caller) -> None:
        """Answer the greeting, however often the client sends it."""
        self._session = caller
        self._subscribed.clear()
        instructions = {"instructions": self.server.instructions} if self.server.instructions else {}
        said = {
            "protocolVersion": caller.version,
            "capabilities": self.server.capabilities,
            "serverInfo": self.server.info(),
            **instructions,
        }
        self._answer(id, said)

    def _answer_discover(self, id: Id, params: dict[str, Any], caller: Caller) -> None:
        instructions = {"instructions": self.server.instructions} if self.server.instructions else {}
        said = {
            "supportedVersions": [*MODERN_REVISIONS],
            "capabilities": self.server.capabilities,
            **instructions,
        }
        self._answer(id, requests.add_modern_fields(said, self.server.info(), cacheable=True))

    def _answer_ping(self, id: Id, params: dict[str, Any], caller: Caller) -> None:
        if caller.era == MODERN:
            self._write_error(id, errors.METHOD_NOT_FOUND, "method not found: ping")
        else:
            self._answer(id, {})

    def _answer_list(self, id: Id, listed: messages.List, params: dict[str, Any], caller: Caller) -> None:
        page = build_page(self.offer[listed.name], params.get("cursor"), self._generation, self.codec.encode)
        if page is None:
            self._write_error(id, errors.INVALID_PARAMS, "the cursor is unknown, or the list has changed")
            return
        shown, cursor = page
        result: dict[str, Any] = {listed.key: shown, **({} if cursor is None else {"nextCursor": cursor})}
        modern = caller.era == MODERN
        self._answer(id, requests.add_modern_fields(result, self.server.info(), cacheable=True) if modern else result)

    def _answer(self, id: Id, result: dict[str, Any]) -> None:
        failure = self._write_result(id, self._json(result))
        if failure is not None:
            self._write_error(id, errors.INTERNAL_ERROR, f"the answer cannot be sent: {failure.message}")

    # Subscriptions to changes.

    def _add_listener(self, id: Id, params: dict[str, Any]) -> list[Event]:
        wanted = as_object(params.get("notifications"))
        if len(self._listeners) >= MAX_LISTENERS:
            self._write_error(id, errors.INTERNAL_ERROR, f"there are already {MAX_LISTENERS} subscriptions")
            return []
        agreed: dict[str, Any] = {
            flag: True for flag, kind in _FLAGS.items() if wanted.get(flag) is True and self._announces_changes(kind)
        }
        uris = wanted.get("resourceSubscriptions")
        if isinstance(uris, list) and as_object(self.server.capabilities.get("resources")).get("subscribe") is True:
            agreed["resourceSubscriptions"] = [uri for uri in uris if isinstance(uri, str)][:MAX_WATCHED]
        before = self._watched_uris()
        self._listeners[id] = agreed
        self._tell_listener(id, messages.ACKNOWLEDGED, {"notifications": agreed})
        return self._watch_changes(before)

    def _announces_changes(self, kind: str) -> bool:
        return as_object(self.server.capabilities.get(kind)).get("listChanged") is True

    def _tell_listener(self, id: Any, method: str, params: dict[str, Any]) -> Failure | None:
        return self._write_notification(method, self._json({"_meta": {messages.SUBSCRIPTION: id}, **params}))

    def _watched_uris(self) -> set[str]:
        return {uri for agreed in self._listeners.values() for uri in agreed.get("resourceSubscriptions", ())}

    def _watch_changes(self, before: set[str]) -> list[Event]:
        """Resources with a first subscriber, and resources without subscribers since."""
        now = self._watched_uris()
        gone_uris, new_uris = sorted(before - now), sorted(now - before)
        return [
            *(Notified(WatchResource(uri, False)) for uri in gone_uris),
            *(Notified(WatchResource(uri, True)) for uri in new_uris),
        ]

    def _take_notification(self, name: str, params: dict[str, Any], line: bytes) -> list[Event]:
        if name in messages.UNREMARKABLE:
            return []
        if name in (messages.INITIALIZED, messages.ROOTS_CHANGED):  # roots can be asked for from here on
            return [Notified(ChangeRoots())] if self.session_has_roots else []
        if name != messages.CANCELLED:
            return noise(line, f"unknown notification {name[:HEAD_BYTES]!r}")
        id = params.get("requestId")
        if type(id) in (int, str) and id in self._listeners:
            before = self._watched_uris()
            del self._listeners[id]
            return self._watch_changes(before)
        return self._cancel_incoming(params)

    def _drop(self, number: CallId, asked: IncomingRequest) -> list[Event]:
        """The questions of a call end with it."""
        return [CancelArrived(number), *(_abandon_questions(asked) if isinstance(asked, ClientRequest) else ())]

    # What we tell.

    def notify(self, op: PluginOp | HostOp) -> Failure | None:
        """A new offer, a changed resource or a log line. Clients that did not subscribe are not told."""
        if type(op) not in _NOTIFICATIONS:
            return super().notify(op)
        refusal = self._refuse_unless_ready()
        if refusal is not None:
            return refusal
        if isinstance(op, OfferExports):
            return self._replace_offer(op.offer)
        if isinstance(op, ChangeResource):
            return self._announce_change(op.uri)
        assert isinstance(op, WriteLog)
        return self._log(op)

    def _replace_offer(self, offer: Mapping[str, Any]) -> Failure | None:
        """Replace the lists, and notify subscribed clients of those that changed."""
        before, after = self.offer, {**messages.empty_offer(), **offer}
        self.offer = after
        self._tools = frozenset(tool["name"] for tool in after["tools"])
        self._generation += 1
        kinds = {listed.capability for listed in LISTS if before[listed.name] != after[listed.name]}
        for method, kind in messages.LIST_CHANGED.items():
            if kind not in kinds or not self._announces_changes(kind):
                continue
            if self._session is not None:
                self._write(b'{"jsonrpc":"2.0","method":"%b"}' % method.encode())
            for id, agreed in self._listeners.items():
                if agreed.get(f"{kind}ListChanged"):
                    self._tell_listener(id, method, {})
        return None

    def _announce_change(self, uri: str) -> Failure | None:
        failure = None
        if uri in self._subscribed:
            failure = self._write_notification(messages.UPDATED, self._json({"uri": uri}))
        for id, agreed in self._listeners.items():
            if uri in agreed.get("resourceSubscriptions", ()):
                failure = self._tell_listener(id, messages.UPDATED, {"uri": uri}) or failure
        return failure

    def _log(self, op: WriteLog) -> Failure | None:
        """To a session as it wishes; in the modern era only while a call is open that wants to hear it."""
        if "logging" not in self.server.capabilities:
            return None
        line = messages.write_log(op)
        wishes = [self._lowest] if self._session is not None else []
        wishes += [
            asked.caller.log_level
            for asked in self._incoming.values()
            if isinstance(asked, ClientRequest) and not asked.is_parked
        ]
        if not any(wish and messages.is_log_wanted(line["level"], wish) for wish in wishes):
            return None
        return self._write_notification(messages.MESSAGE, self._json(line))

    def _draw_state(self) -> str:
        if self._entropy is None:
            raise Misuse("mcp plugin: a server that asks its client needs a source of entropy")
        return self._entropy().hex()

    # Questions to the client.

    def call(self, id: CallId, op: PluginOp | HostOp, within: CallId | None = None) -> Failure | None:
        """`within`: the request of the client during which it is asked."""
        found = self._find_caller(op, within)
        if isinstance(found, Failure):
            return found
        number, request, caller = found
        if caller.era == MODERN:
            return self._ask_within(id, op, number, request)
        method, params = client_features.write_request(op, self._draw_state(), modern=False)
        members = self._json(params)
        if isinstance(members, Failure):
            return members
        return self._put(SentRequest(CALL, method, members[1:-1], call=id, op=op))

    def refuse_question(self, op: PluginOp | HostOp, within: CallId | None = None) -> Failure | None:
        """Why the client cannot be asked this during its request `within`; None if it can."""
        found = self._find_caller(op, within)
        return found if isinstance(found, Failure) else None

    def _find_caller(
        self, op: Any, within: CallId | None
    ) -> tuple[CallId | None, IncomingRequest | None, Caller] | Failure:
        """The request during which the client is asked, with its number, and the client."""
        refusal = None if self.state == READY else self._refuse_unless_ready()
        if refusal is not None:
            return refusal
        if type(op) not in client_features.METHODS:
            raise Misuse(f"mcp cannot ask {type(op).__name__} from {self.role}")
        number = self._choose_call() if within is None else within
        request = None if number is None else self._incoming.get(number)
        caller = request.caller if isinstance(request, ClientRequest) else self._session
        if caller is None:
            return Failure(Code.UNAVAILABLE, "there is no client to ask")
        missing = client_features.find_missing(op, caller.capabilities)
        if missing is not None:
            what = f"the client does not offer {', '.join(missing)}"
            return Failure(Code.CAPABILITY_NOT_ALLOWED, what, detail={"requires": missing})
        return number, request, caller

    def _choose_call(self) -> CallId | None:
        """The call that a question belongs to, if none is named: the latest that may be interrupted.

        An answer finds its question whichever call carries it.
        """
        open = [(number, asked) for number, asked in self._incoming.items() if isinstance(asked, ClientRequest)]
        fit = [(number, asked) for number, asked in open if isinstance(asked.op, INTERRUPTIBLE)]
        best = [number for number, asked in fit if not asked.is_parked] or [number for number, _ in fit]
        return best[-1] if best else None

    def _ask_within(
        self, id: CallId, op: Any, number: CallId | None, request: IncomingRequest | None
    ) -> Failure | None:
        """Ask with the answer to a call; while that is parked, with its next one."""
        if number is None or not isinstance(request, ClientRequest) or not isinstance(request.op, INTERRUPTIBLE):
            return Failure(Code.UNAVAILABLE, "in this revision of MCP a server can ask its client only during a call")
        encoded = self._json(client_features.write_request(op, "", modern=True)[1])
        if isinstance(encoded, Failure):
            return encoded
        request.questions[f"q{id}"] = (id, op)
        if request.is_parked:
            return None
        failure = self._park(number, request)
        if failure is not None:
            del request.questions[f"q{id}"]
        return failure

    def _park(self, number: CallId, request: ClientRequest) -> Failure | None:
        state = self._draw_state()
        wanted = {
            key: dict(zip(("method", "params"), client_features.write_request(op, "", modern=True), strict=True))
            for key, (_, op) in request.questions.items()
        }
        said = {"resultType": requests.INPUT_REQUIRED, "inputRequests": wanted, "requestState": state}
        failure = self._write_result(request.id, self._json({**said, "_meta": {messages.SERVER: self.server.info()}}))
        if failure is None:
            self._parked[state] = (number, request)
            request.is_parked = True
            request.id = PARKED  # type: ignore[assignment]
        return failure

    # The call is repeated.

    def _resume(self, repeated: ClientRequest, state: Any, answers: dict[str, Any]) -> list[Event]:
        number, request = self._parked.get(state, (0, None)) if isinstance(state, str) else (0, None)
        if request is None or not _is_same_call(request, repeated):
            why = "requestState does not belong to this call, or no call waits for it"
            self._write_error(repeated.id, errors.INVALID_PARAMS, why)
            return []
        del self._parked[state]
        request.id, request.token, request.caller = repeated.id, repeated.token, repeated.caller
        request.is_parked = False
        events: list[Event] = []
        for key in [key for key in request.questions if key in answers]:
            call, op = request.questions.pop(key)
            events.append(_read_answer(call, op, answers[key]))
        if request.outcome is not None:
            self._incoming[number] = request
            self.finish(number, *request.outcome)
            return events + _abandon_questions(request)
        unsent = self._park(number, request) if request.questions else None
        if unsent is not None:
            events += [CallFinished(call, None, unsent) for call, _ in request.questions.values()]
            request.questions.clear()
        return events

    def _drop_oldest_parked(self) -> list[Event]:
        events: list[Event] = []
        while len(self._parked) > MAX_PARKED:
            number, request = self._parked.pop(next(iter(self._parked)))
            is_over = self._incoming.pop(number, None) is None
            events += _abandon_questions(request) if is_over else self._drop(number, request)
        return events

    # Results.

    def finish(self, id: CallId, value: Any = None, failure: Failure | None = None) -> None:
        request = self._incoming.get(id)
        if not isinstance(request, ClientRequest):
            super().finish(id, value, failure)
            return
        if failure is not None and errors.is_for_the_model(type(request.op), failure):
            value, failure = errors.to_result(failure), None
        if request.is_parked:
            request.outcome = (value, failure)  # sent when the client repeats the call
            del self._incoming[id]
            return
        super().finish(id, value, failure)
        if failure is None:
            self._apply(request.op)

    def _apply(self, op: Any) -> None:
        """A request of the handshake era succeeded that changes the notifications of the session."""
        if isinstance(op, SetLogLevel):
            self._lowest = op.level
        elif isinstance(op, WatchResource):
            (self._subscribed.add if op.wanted else self._subscribed.discard)(op.uri)

    def _encode_result(self, asked: IncomingRequest, value: Any) -> bytes | Failure:
        assert isinstance(asked, ClientRequest)
        try:
            result = requests.build_result(asked.op, value, self.codec)
        except Unencodable as error:
            return Failure(Code.INVALID_INPUT, f"it cannot be sent as JSON: {error}")
        if asked.caller.era == MODERN:
            cacheable = requests.is_cacheable(asked.op)
            result = requests.add_modern_fields(result, self.server.info(), cacheable=cacheable)
        return self._json(result)

    def _encode_failure(self, asked: IncomingRequest, failure: Failure) -> tuple[int, str, dict[str, Any] | None]:
        modern = isinstance(asked, ClientRequest) and asked.caller.era == MODERN
        return errors.to_error(type(asked.op), failure, modern=modern)

    def progress(self, id: CallId, item: Any) -> Failure | None:
        """SentRequest only to a client that gave a token. An item without a number of its own is counted."""
        request = self._incoming.get(id)
        if not isinstance(request, ClientRequest) or request.token is None or request.is_parked:
            return None
        request.steps += 1
        step = item if isinstance(item, dict) and "progress" in item else requests.build_progress(request.steps, item)
        return self._write_notification(messages.PROGRESS, self._json({messages.TOKEN: request.token, **step}))

    def cancel(self, id: CallId, reason: str) -> None:
        for request in self._incoming.values():
            if isinstance(request, ClientRequest):
                request.questions.pop(f"q{id}", None)
        super().cancel(id, reason)

    def close(self, reason: str) -> None:
        """End the subscriptions of the client as the revision demands."""
        for id in self._listeners:
            self._answer(id, requests.build_subscription_end(id))
            self._write_notification(messages.CANCELLED, self._json({"requestId": id}))
        self._listeners.clear()
        self._step("close")

    # Answers of the client, in the handshake era.

    def _build_meta(self, sent: SentRequest, wire: int) -> bytes:
        return b'{"progressToken":%d}' % wire

    def _conclude_unreadable(self, sent: SentRequest, failure: Failure) -> list[Event]:
        assert sent.call is not None
        return [CallFinished(sent.call, None, failure)]

    def _conclude(self, sent: SentRequest, message: Any, frame: bytes) -> list[Event]:
        assert sent.call is not None
        if message.error is not ABSENT:
            failure = errors.from_error(type(sent.op), sent.method, message.error)
            return [CallFinished(sent.call, None, failure)]
        if message.result is ABSENT:
            what = f"the answer to {sent.method} has neither a result nor an error"
            return [CallFinished(sent.call, None, malformed(what, frame))]
        return [_read_answer(sent.call, sent.op, self.codec.load(message.result))]


def _read_answer(call: CallId, op: Any, said: Any) -> CallFinished:
    value = client_features.read_result(op, said)
    if isinstance(value, str):
        what = f"the answer to {client_features.METHODS[type(op)]}: {value}"
        return CallFinished(call, None, Failure(Code.MALFORMED_RESPONSE, what))
    return CallFinished(call, value)


def _is_same_call(parked: ClientRequest, again: ClientRequest) -> bool:
    """Whether a call that comes with a state is the one that was given it."""
    fields = ("tool", "prompt", "uri", "input")
    return type(parked.op) is type(again.op) and all(
        getattr(parked.op, field, None) == getattr(again.op, field, None) for field in fields
    )


def _abandon_questions(request: ClientRequest) -> list[Event]:
    """The call is over, so its questions will not be answered."""
    gone = Failure(Code.CANCELLED, "the call is over")
    return [CallFinished(call, None, gone) for call, _ in request.questions.values()]


def requested_id(head: bytes) -> int | None:
    """The id of the request that a line begins; None where that is not certain.

    Real clients write a number, and write it before the parameters, as our own host does.
    """
    before, found, _ = head.partition(b'"params"')
    _, _, after = before.partition(b'"id":')
    digits = after.partition(b",")[0].strip()
    certain = found and b'"method"' in before and digits.isdigit() and len(digits) <= 15
    return int(digits) if certain else None
