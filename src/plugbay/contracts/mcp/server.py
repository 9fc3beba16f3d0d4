"""The half of the conversation that a PLUGIN plays: it is greeted in either era, lists itself, and is called.

Owns who asks (a session of the handshake era, or what a request of the modern one says about itself), the lists, and
who hears of changes. A question to the client during a call is `parking.py`'s. Refuses to know how a host works.
"""

from __future__ import annotations

from plugbay.contracts.base import Role
from plugbay.contracts.mcp import errors, logs, messages, replies, requests
from plugbay.contracts.mcp.calling import gone
from plugbay.contracts.mcp.client import ClientMachine
from plugbay.contracts.mcp.framing import requested_id
from plugbay.contracts.mcp.messages import HANDSHAKE, LISTS, MODERN, MODERN_REVISIONS, REVISIONS, as_object
from plugbay.contracts.mcp.pages import page_of
from plugbay.contracts.rpc import IncomingRequest, noise
from plugbay.model.events import CallFinished, CancelArrived, Notified, Ready
from plugbay.model.operations import ChangeResource, InvokeTool, OfferExports, SetLogLevel, WatchResource, WriteLog
from plugbay.model.values import Value
from plugbay.wire.lines import HEAD_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from plugbay.contracts.rpc import Id
    from plugbay.model.errors import Failure
    from plugbay.model.events import CallId, Event
    from plugbay.wire.strict_json import Codec

MAX_LISTENERS = 64
"""Subscriptions of one client at a time; it needs one, and replaces it when it wants to hear of more."""

MAX_WATCHED = 1_000
"""Resources that a session, or a subscription, hears of; for each of them a plugin is asked to watch it."""

_LISTS = {listed.method: listed for listed in LISTS}
_MODERN_ONLY = frozenset({messages.DISCOVER, messages.LISTEN})
_FLAGS = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}


class Caller(Value):
    """Who asks: the era, the revision, the client's name and version, what it can be asked, what it wants to hear."""

    __slots__ = ("capabilities", "client", "era", "log_level", "version")

    def __init__(
        self, era: str, version: str, client: dict[str, Any], capabilities: dict[str, Any], log_level: str = ""
    ) -> None:
        self.era = era
        self.version = version
        self.client = client
        self.capabilities = capabilities
        self.log_level = log_level

    def hello(self) -> dict[str, Any]:
        """What `Ready` says of a client."""
        return {
            "era": self.era,
            "protocol_version": self.version,
            "client": self.client,
            "capabilities": self.capabilities,
        }


class Served(IncomingRequest):
    """A call that waits for our answer: who made it, and what to say about its progress."""

    __slots__ = ("caller", "is_parked", "outcome", "questions", "steps", "token")

    def __init__(self, id: Id, op: Any, caller: Caller, token: Any) -> None:
        super().__init__(id, op)
        self.caller = caller
        self.token = token if type(token) in (int, str) else None
        self.steps = 0
        self.is_parked = False
        """Whether the client has the word: it was asked something, and has to make the call again."""
        self.questions: dict[str, tuple[CallId, Any]] = {}
        """What the client was asked during the call, by its key: our call, and the question."""
        self.outcome: tuple[Any, Failure | None] | None = None
        """How it ended, when that was while it was parked."""


def unanswered(served: Served) -> list[Event]:
    """What becomes of the questions of a call that is over: nobody will answer them."""
    return [CallFinished(call, None, gone("the call is over")) for call, _ in served.questions.values()]


class ServerMachine(ClientMachine):
    """What a plugin does."""

    __slots__ = ("_generation", "_listeners", "_lowest", "_own", "_session", "_subscribed", "server")

    def __init__(
        self,
        role: str,
        codec: Codec,
        era: str,
        client: Mapping[str, Any] | None,
        offers: frozenset[str],
        server: messages.Server,
    ) -> None:
        super().__init__(role, codec, era, client, offers)
        self.server = server
        self.offer = {name: [dict(entry) for entry in entries] for name, entries in server.offer.items()}
        self._tools = messages.call_prefixes(self.offer["tools"], codec)
        self._session: Caller | None = None
        """Whoever said `initialize`."""
        self._subscribed: set[str] = set()
        self._lowest = "debug"
        self._listeners: dict[Any, dict[str, Any]] = {}
        """Subscriptions of the modern era, by the id of their request: what each is told."""
        self._generation = 0
        """Counts the offers, so that a cursor of an older one is known for what it is."""
        self._own: dict[str, Callable[[Id, dict[str, Any], Caller], list[Event]]] = {
            messages.INITIALIZE: self._answer_greeting,
            messages.PING: self._ping,
            messages.DISCOVER: self._discover,
            messages.LISTEN: self._listen_to_us,
        }

    # Requests.

    def _asked_by_client(self, id: Id, name: str, params: dict[str, Any]) -> list[Event]:
        caller = self._who(id, name, params)
        if caller is None:
            return []
        met: list[Event] = []
        if name != messages.PING and self._may("hello"):
            self._step("hello")
            met.append(Ready(caller.hello()))
        listed, own = _LISTS.get(name), self._own.get(name)
        if listed is not None and listed.capability in self.server.capabilities:
            self._list(id, listed, params, caller)
        elif own is not None and (caller.era == MODERN or name not in _MODERN_ONLY):
            return met + own(id, params, caller)
        else:
            return met + self._called(id, name, params, caller)
        return met

    def _who(self, id: Id, name: str, params: dict[str, Any]) -> Caller | None:
        """Who asks; None when that is not said as it has to be, which the answer says then."""
        meta = as_object(params.get("_meta"))
        if name == messages.INITIALIZE:
            return self._introduced(params)
        if messages.VERSION in meta or name in _MODERN_ONLY:
            return self._modern_caller(id, meta)
        if name == messages.PING or self._session is not None:
            return self._session or Caller(HANDSHAKE, REVISIONS[0], {}, {})
        why = f"{name}: say initialize first, or say in _meta which revision of MCP this is"
        self._write_error(id, errors.INVALID_PARAMS, why)
        return None

    def _introduced(self, params: dict[str, Any]) -> Caller:
        asked = params.get("protocolVersion")
        version = asked if isinstance(asked, str) and asked in REVISIONS else REVISIONS[0]
        return Caller(HANDSHAKE, version, as_object(params.get("clientInfo")), as_object(params.get("capabilities")))

    def _modern_caller(self, id: Id, meta: dict[str, Any]) -> Caller | None:
        version, capabilities, level = (
            meta.get(key) for key in (messages.VERSION, messages.CAPABILITIES, messages.LOG_LEVEL)
        )
        if not isinstance(version, str) or not isinstance(capabilities, dict):
            needed = f"{messages.VERSION} (a string) and {messages.CAPABILITIES} (an object)"
            self._write_error(id, errors.INVALID_PARAMS, f"_meta must hold {needed}")
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

    def _called(self, id: Id, name: str, params: dict[str, Any], caller: Caller) -> list[Event]:
        needed = requests.NEEDS.get(name)
        settings = self.server.capabilities.get(needed or "")
        unknown = (caller.era == MODERN and name in requests.HANDSHAKE_ONLY) or not isinstance(settings, dict)
        unwatchable = name in requests.WATCHING and as_object(settings).get("subscribe") is not True
        op = None if unknown or unwatchable else requests.read(name, params)
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
                id, errors.INTERNAL_ERROR, f"{MAX_WATCHED:,} resources are watched for this client already"
            )
            return []
        token = as_object(params.get("_meta")).get(messages.TOKEN)
        return self._serve(Served(id, op, caller, token), params)

    def _serve(self, served: Served, params: dict[str, Any]) -> list[Event]:
        """A call that can be made; one that goes on where it was left is told from a new one above."""
        return self._accept_request(served)

    def _unreadable(self, head: bytes, why: str) -> None:
        """Whoever asked must not wait for ever, where it can be seen who that was."""
        id = requested_id(head) if self.role == Role.PLUGIN else None
        if id is not None:
            self._write_error(id, errors.INVALID_REQUEST, f"the request cannot be read: {why}")

    # What the machine answers itself.

    def _answer_greeting(self, id: Id, params: dict[str, Any], caller: Caller) -> list[Event]:
        """Say who we are, however often we are asked."""
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
        return []

    def _discover(self, id: Id, params: dict[str, Any], caller: Caller) -> list[Event]:
        instructions = {"instructions": self.server.instructions} if self.server.instructions else {}
        said = {
            "supportedVersions": [*MODERN_REVISIONS],
            "capabilities": self.server.capabilities,
            **instructions,
        }
        self._answer(id, replies.in_modern(said, self.server.info(), cacheable=True))
        return []

    def _ping(self, id: Id, params: dict[str, Any], caller: Caller) -> list[Event]:
        if caller.era == MODERN:
            self._write_error(id, errors.METHOD_NOT_FOUND, "method not found: ping")
        else:
            self._answer(id, {})
        return []

    def _list(self, id: Id, listed: messages.List, params: dict[str, Any], caller: Caller) -> None:
        page = page_of(self.offer[listed.name], params.get("cursor"), self._generation, self.codec.encode)
        if page is None:
            self._write_error(id, errors.INVALID_PARAMS, "the cursor is none of ours, or the list has changed since")
            return
        shown, cursor = page
        result: dict[str, Any] = {listed.key: shown, **({} if cursor is None else {"nextCursor": cursor})}
        modern = caller.era == MODERN
        self._answer(id, replies.in_modern(result, self.server.info(), cacheable=True) if modern else result)

    def _answer(self, id: Id, result: dict[str, Any]) -> None:
        failure = self._write_result(id, self._json(result))
        if failure is not None:
            self._write_error(id, errors.INTERNAL_ERROR, f"the answer cannot be sent: {failure.message}")

    # Who hears of changes.

    def _listen_to_us(self, id: Id, params: dict[str, Any], caller: Caller) -> list[Event]:
        wanted = as_object(params.get("notifications"))
        if len(self._listeners) >= MAX_LISTENERS:
            self._write_error(id, errors.INTERNAL_ERROR, f"there are {MAX_LISTENERS} subscriptions already")
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
        """Which resources somebody listens to now and nobody did before, and the other way round."""
        now = self._watched_uris()
        gone_uris, new_uris = sorted(before - now), sorted(now - before)
        return [
            *(Notified(WatchResource(uri, False)) for uri in gone_uris),
            *(Notified(WatchResource(uri, True)) for uri in new_uris),
        ]

    def _told_by_client(self, name: str, params: dict[str, Any], line: bytes) -> list[Event]:
        if name == messages.INITIALIZED or name in messages.UNREMARKABLE:
            return []
        if name != messages.CANCELLED:
            return noise(line, f"unknown notification {name[:HEAD_BYTES]!r}")
        id = params.get("requestId")
        if type(id) in (int, str) and id in self._listeners:
            before = self._watched_uris()
            del self._listeners[id]
            return self._watch_changes(before)
        return self._withdrawn(params)

    def _drop(self, number: CallId, asked: IncomingRequest) -> list[Event]:
        """With a call its questions are over, which nobody will answer."""
        return [CancelArrived(number), *(unanswered(asked) if isinstance(asked, Served) else ())]

    # What we tell.

    def _tell_client(self, op: Any) -> Failure | None:
        if isinstance(op, OfferExports):
            return self._offer_anew(op.offer)
        if isinstance(op, ChangeResource):
            return self._resource_changed(op.uri)
        return self._log(op)

    def _offer_anew(self, offer: Mapping[str, Any]) -> Failure | None:
        """The lists are others from now on; whoever wants to know is told which."""
        before, after = self.offer, {**messages.empty_offer(), **offer}
        self.offer = after
        self._tools = messages.call_prefixes(after["tools"], self.codec)
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

    def _resource_changed(self, uri: str) -> Failure | None:
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
        line = logs.said(op)
        wishes = [self._lowest] if self._session is not None else []
        wishes += [
            asked.caller.log_level
            for asked in self._incoming.values()
            if isinstance(asked, Served) and not asked.is_parked
        ]
        if not any(wish and logs.is_wanted(line["level"], wish) for wish in wishes):
            return None
        return self._write_notification(messages.MESSAGE, self._json(line))

    def _settled(self, op: Any) -> None:
        """A request of the handshake era that changes what we tell went well."""
        if isinstance(op, SetLogLevel):
            self._lowest = op.level
        elif isinstance(op, WatchResource):
            (self._subscribed.add if op.wanted else self._subscribed.discard)(op.uri)
