"""`ClientMachine`: the HOST role of MCP, in both eras.

It greets the server (`Greeting` negotiates era and revision), reads the server's lists (`listing.py`), reports `Ready`,
and then calls. It also answers the server's requests for sampling, elicitation and roots, and reads a list
again when the server says that it changed.
"""

from __future__ import annotations

from plugbay.contracts.base import Misuse, Role
from plugbay.contracts.mcp import client_features, errors, messages, requests
from plugbay.contracts.mcp.listing import Listing, announced_lists
from plugbay.contracts.mcp.machine import CALL, HELLO, LISTEN, PAGE, McpMachine, SentRequest
from plugbay.contracts.mcp.messages import (
    HANDSHAKE,
    LIST_CHANGED,
    LISTS,
    MODERN,
    MODERN_REVISIONS,
    REVISIONS,
    as_object,
    as_text,
)
from plugbay.contracts.mcp.requests import InputRequired
from plugbay.contracts.rpc import READY, IncomingRequest, error_text, malformed, noise
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallFinished, Notified, Ready
from plugbay.model.operations import (
    ChangeResource,
    ChangeRoots,
    CheckHealth,
    ClientQuestion,
    InvokeTool,
    OfferExports,
    SetLogLevel,
    WatchResource,
)
from plugbay.model.values import Value
from plugbay.wire.lines import HEAD_BYTES
from plugbay.wire.strict_json import ABSENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from plugbay.contracts.mcp.messages import List
    from plugbay.contracts.rpc import Id
    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import HostOp, PluginOp
    from plugbay.wire.strict_json import Codec

CLIENT = {"name": "plugbay", "version": "0"}
"""`clientInfo` of a host that gives none."""

TEMPLATES = "resource_templates"

MAX_RELISTS = 1_000
"""How often a server may make us list again; one that changes with every listing would keep both ends busy."""

MAX_ROUNDS = 16
"""How often one call may be answered with `input_required`; a server could otherwise ask for ever."""

MAX_QUESTIONS = 16
"""Questions in one answer; each may interrupt a person."""

ANSWER_ROOM = 1 << 20
"""Bytes of a message that stay free for answers when a call is repeated with the server's state."""

ENDED = "the server ended the subscription to its changes"

WRONG_ERA = frozenset(
    {errors.METHOD_NOT_FOUND, errors.INVALID_PARAMS, errors.INVALID_REQUEST, errors.UNSUPPORTED_VERSION}
)
"""Codes with which a server of the modern era refuses `initialize`: unknown method, or no `_meta`."""


class Welcome(Value):
    """The result of a greeting: the revision, `serverInfo`, and the capabilities of the server."""

    __slots__ = ("capabilities", "server", "version", "warnings")

    def __init__(self, version: str, server: dict[str, str], capabilities: dict[str, Any], warnings: list[str]) -> None:
        self.version = version
        self.server = server
        self.capabilities = capabilities
        self.warnings = warnings


class Greeting:
    """The negotiation of era and revision: decides the next request; writes nothing.

    A client never probes. It opens in the configured era and switches only if the server's own answer demands it: an
    error that names other revisions, or that does not know the method. Every revision is tried once.
    """

    __slots__ = ("_client", "_offers", "_refusals", "_tried", "era", "version")

    def __init__(self, era: str, client: Mapping[str, Any], offers: frozenset[str]) -> None:
        self.era = era
        self.version = REVISIONS[0] if era == HANDSHAKE else MODERN_REVISIONS[0]
        self._client = dict(client)
        self._offers = offers
        self._tried: set[tuple[str, str]] = set()
        self._refusals: list[str] = []

    def build_meta(self) -> dict[str, Any]:
        """The `_meta` of every request of the modern era."""
        capabilities = messages.client_capabilities(self._offers, modern=True)
        return {messages.VERSION: self.version, messages.CLIENT: self._client, messages.CAPABILITIES: capabilities}

    def build_opening(self) -> tuple[str, dict[str, Any]]:
        """The method and the parameters of the next attempt."""
        self._tried.add((self.era, self.version))
        if self.era == MODERN:
            return messages.DISCOVER, {"_meta": self.build_meta()}
        capabilities = messages.client_capabilities(self._offers, modern=False)
        said = {"protocolVersion": self.version, "capabilities": capabilities, "clientInfo": self._client}
        return messages.INITIALIZE, said

    def take_error(self, error: Any) -> Failure | None:
        """The server refused. None: there is another revision to try, which `build_opening` now builds."""
        said = as_object(error)
        method = messages.INITIALIZE if self.era == HANDSHAKE else messages.DISCOVER
        self._refusals.append(f"{method}: {error_text(said)}")
        data = as_object(said.get("data"))
        supported = data.get("supported")
        number = said.get("code")
        if isinstance(supported, list):
            return None if self._switch_to(supported) else self._refuse_versions(supported)
        if messages.FAILURE in data and number not in WRONG_ERA:
            return errors.from_error(type(None), method, said)  # another revision would fail as well
        if self.era == MODERN or (type(number) is int and number in WRONG_ERA):
            other = MODERN_REVISIONS if self.era == HANDSHAKE else REVISIONS
            if self._switch_to(list(other[:1])):
                return None
        detail: dict[str, Any] = {"plugin_code": number} if type(number) is int else {}
        what = f"the server refused the greeting ({'; '.join(self._refusals)})"
        return Failure(Code.HANDSHAKE_FAILED, what, origin=Origin.PLUGIN, detail=detail)

    def _switch_to(self, supported: list[Any]) -> bool:
        """Choose the newest revision that both ends have and that was not tried yet."""
        for era, revisions in ((MODERN, MODERN_REVISIONS), (HANDSHAKE, REVISIONS)):
            for version in revisions:
                if version in supported and (era, version) not in self._tried:
                    self.era, self.version = era, version
                    return True
        return False

    def _refuse_versions(self, supported: list[Any]) -> Failure:
        theirs = [version for version in supported if isinstance(version, str)]
        ours = [*MODERN_REVISIONS, *REVISIONS]
        spoken = f"speaks {', '.join(theirs)}" if theirs else "names no revision"
        what = f"the server {spoken} of MCP; this host speaks {', '.join(ours)}"
        return Failure(Code.PROTOCOL_VERSION_MISMATCH, what, detail={"supported": theirs, "expected": ours})

    def take_result(self, result: Any) -> Welcome | Failure | None:
        """The server answered. None: only another revision is possible, which `build_opening` now builds."""
        if not isinstance(result, dict):
            return Failure(Code.HANDSHAKE_FAILED, "the answer to the greeting is not an object", origin=Origin.PLUGIN)
        return self._take_discovery(result) if self.era == MODERN else self._take_initialization(result)

    def _take_discovery(self, result: dict[str, Any]) -> Welcome | Failure | None:
        supported = result.get("supportedVersions")
        if isinstance(supported, list) and self.version not in supported:
            return None if self._switch_to(supported) else self._refuse_versions(supported)
        warnings = [] if isinstance(supported, list) else ["server/discover was answered without supportedVersions"]
        return self._build_welcome(result, as_object(result.get("_meta")).get(messages.SERVER), warnings)

    def _take_initialization(self, result: dict[str, Any]) -> Welcome | Failure:
        said, warnings = result.get("protocolVersion"), []
        if isinstance(said, str) and said in REVISIONS:
            self.version = said
        elif _is_revision(said):
            return self._refuse_versions([said])
        else:
            shown = said[:40] if isinstance(said, str) else said
            warnings.append(f"answered initialize with the protocolVersion {shown!r}, which is taken as {self.version}")
        return self._build_welcome(result, result.get("serverInfo"), warnings)

    def _build_welcome(self, result: dict[str, Any], info: Any, warnings: list[str]) -> Welcome:
        server = {key: as_text(as_object(info).get(key)) for key in ("name", "version", "title")}
        server["instructions"] = as_text(result.get("instructions"))
        for key in ("name", "version"):
            if not server[key]:
                warnings.append(f"has no {key} in serverInfo")
        if not isinstance(result.get("capabilities"), dict):
            warnings.append("announces no capabilities")
        optional = {key: server[key] for key in ("title", "instructions") if server[key]}
        said = {"name": server["name"], "version": server["version"], **optional}
        return Welcome(self.version, said, as_object(result.get("capabilities")), warnings)


def _is_revision(said: Any) -> bool:
    """Whether it looks like a revision: a date."""
    if not (isinstance(said, str) and len(said) == 10):
        return False
    year, month, day = said[:4], said[5:7], said[8:]
    return said[4] == said[7] == "-" and all(part.isascii() and part.isdigit() for part in (year, month, day))


class InputRequest(IncomingRequest):
    """A question inside an answer with `input_required`: the call it belongs to, and its key there."""

    __slots__ = ("key", "sent")

    def __init__(self, op: Any, sent: SentRequest, key: str) -> None:
        super().__init__(None, op)
        self.sent = sent
        self.key = key


class ClientMachine(McpMachine):
    """One MCP conversation as its client. `offers`: what the operator granted of sampling, elicitation and roots."""

    __slots__ = tuple(
        "_greeting _hello _level _listing _meta_members _questioned _relists _stale _subscription _tools _watched "
        "_watching capabilities offer offers".split()
    )

    def __init__(
        self,
        codec: Codec,
        *,
        era: str = HANDSHAKE,
        client: Mapping[str, Any] | None = None,
        offers: frozenset[str] = frozenset(),
    ) -> None:
        """`era`: the one to open in."""
        super().__init__(Role.HOST, codec)
        if era not in messages.ERAS:
            raise Misuse(f"{era!r} is not an era of MCP; there are {' and '.join(messages.ERAS)}")
        self.offers = offers
        self.capabilities: dict[str, Any] = {}
        """The capabilities that the server announced."""
        self.offer = messages.empty_offer()
        self._greeting = Greeting(era, client or CLIENT, offers)
        self._hello: dict[str, Any] = {}
        self._listing: Listing | None = None
        self._stale: set[str] = set()
        """Lists that changed since they were read."""
        self._relists = 0
        self._tools: dict[str, bytes] = {}
        """Every tool, and the members of a call of it up to its arguments."""
        self._level = ""
        self._meta_members = b""
        """The members of `_meta` that every request has."""
        self._subscription: SentRequest | None = None
        self._watched: list[str] = []
        self._watching: list[CallId] = []
        """Calls that wait for the server to acknowledge a subscription."""
        self._questioned: dict[CallId, SentRequest] = {}
        """Calls whose server waits for answers of ours."""

    @property
    def era(self) -> str:
        """The era of the conversation; it may change while the greeting is negotiated."""
        return self._greeting.era

    @property
    def has_probe(self) -> bool:
        return self.era == HANDSHAKE

    # The greeting.

    def _send_greeting(self) -> None:
        self._last_id = 0
        if self.era == MODERN:
            self._step("discover")
        self._write_greeting()

    def _write_greeting(self) -> None:
        method, params = self._greeting.build_opening()
        failure = self._write_request(self._last_id + 1, method, self._json(params))
        if failure is not None:
            raise Misuse(f"mcp host: the greeting cannot be sent: {failure.message}")
        self._remember(self._last_id + 1, SentRequest(HELLO, method))

    def _take_greeting(self, message: Any) -> list[Event]:
        era = self.era
        if message.error is not ABSENT:
            verdict: Any = self._greeting.take_error(message.error)
        else:
            verdict = self._greeting.take_result(None if message.result is ABSENT else self.codec.load(message.result))
        if isinstance(verdict, Failure):
            return self._fault(verdict)
        if verdict is None:
            if self.era != era:
                self._step("discover" if self.era == MODERN else "initialize")
            self._write_greeting()
            return []
        self._greeted = True
        self._step("welcome")
        self._update_meta()
        self.capabilities = verdict.capabilities
        self._hello = {
            "era": self.era,
            "protocol_version": verdict.version,
            "server": verdict.server,
            "capabilities": verdict.capabilities,
        }
        if self.era == HANDSHAKE:
            self._write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        self._listing = Listing(announced_lists(self.capabilities), self.offer)
        for warning in verdict.warnings:
            self._listing.warn(warning)
        return self._continue_listing(self._listing)

    def _update_meta(self) -> None:
        """In the modern era each request identifies the client, so these members are encoded once."""
        if self.era == MODERN:
            level = {messages.LOG_LEVEL: self._level} if self._level else {}
            self._meta_members = self.codec.encode({**self._greeting.build_meta(), **level})[1:-1]

    # The lists.

    def _continue_listing(self, listing: Listing) -> list[Event]:
        """Ask for the next page; when there is none, the offer is complete."""
        while (listed := listing.current) is not None:
            unsent = self._put(SentRequest(PAGE, listed.method, self.codec.encode(listing.build_params())[1:-1]))
            if unsent is None:
                return []
            listing.skip_list(unsent, expected=False)
        self._listing = None
        changed = listing.offer != self.offer
        self.offer = listing.offer
        self._tools = messages.call_prefixes(self.offer["tools"], self.codec)
        if not self._hello:
            warnings = [event for warning in listing.warnings for event in noise(b"", warning)]
            news: list[Event] = [Notified(OfferExports(self.offer))] if changed else []
            return [*warnings, *news, *self._relist()]
        hello, self._hello = self._hello, {}
        self._step("hello")
        if self.era == MODERN:
            self._subscribe()
        return [Ready({**hello, "offer": self.offer, "warnings": listing.warnings}), *self._relist()]

    def _take_page(self, message: Any, size: int) -> list[Event]:
        listing = self._listing
        listed = None if listing is None else listing.current
        if listing is None or listed is None:
            return []
        if message.error is not ABSENT or message.result is ABSENT:
            return self._skip_list(errors.from_error(OfferExports, listed.method, message.error))
        if not self._announces(listed):
            listing.warn(f"answers {listed.method} without announcing {listed.capability}")
        listing.take_page(self.codec.load(message.result), size)
        return self._continue_listing(listing)

    def _skip_list(self, failure: Failure) -> list[Event]:
        listing = self._listing
        listed = None if listing is None else listing.current
        if listing is None or listed is None:
            return []
        unknown = failure.detail.get("plugin_code") == errors.METHOD_NOT_FOUND
        # Templates are asked for along with resources, and tools are always asked for: many servers lack them.
        expected = unknown and (listed.name == TEMPLATES or not self._announces(listed))
        listing.skip_list(failure, expected=expected)
        return self._continue_listing(listing)

    def _announces(self, listed: List) -> bool:
        return isinstance(self.capabilities.get(listed.capability), dict)

    def _relist(self) -> list[Event]:
        """Read the lists that changed, unless a listing is under way: it calls this again when it ends."""
        if self.state != READY or self._listing is not None or not self._stale:
            return []
        lists = [listed for listed in LISTS if listed.name in self._stale]
        self._stale.clear()
        self._relists += 1
        if self._relists > MAX_RELISTS:
            return noise(b"", f"its lists changed more than {MAX_RELISTS:,} times; they are not read again")
        self._listing = Listing(lists, self.offer)
        return self._continue_listing(self._listing)

    # Calls.

    def call(self, id: CallId, op: PluginOp | HostOp) -> Failure | None:
        refusal = None if self.state == READY else self._refuse_unless_ready()
        if refusal is not None:
            return refusal
        if type(op) is InvokeTool and type(op.input) is self.codec.raw_type and requests.CONTEXT not in op.context:
            prefix, arguments = self._tools.get(op.tool), self.codec.encode(op.input)
            if prefix is not None and arguments.startswith(b"{") and arguments.find(b"\n") < 0:
                return self._call_tool(id, op, prefix + arguments)
        if type(op) not in requests.SUPPORTS:
            raise Misuse(f"mcp cannot ask {type(op).__name__} from {self.role}")
        refusal = self._refuse_unannounced(op)
        if refusal is not None:
            return refusal
        if self.era == MODERN and type(op) is WatchResource:
            return self._watch(id, op)
        written = requests.write_request(op, self.codec)
        if isinstance(written, Failure):
            return written
        method, members = written
        if self.era == MODERN and type(op) is SetLogLevel:
            self._level = op.level  # sent with every request from now on, beginning with one that changes nothing
            self._update_meta()
            method, members = messages.DISCOVER, b""
        extra = self._caller_meta(op)
        if isinstance(extra, Failure):
            return extra
        return self._put(SentRequest(CALL, method, members, call=id, op=op, extra=extra))

    def _call_tool(self, id: CallId, op: InvokeTool, members: bytes) -> Failure | None:
        """The usual call: arguments that were checked against every limit when they were encoded, and no extra meta."""
        wire, ours = self._last_id + 1, self._meta_members
        head = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{' % wire
        meta = b',"_meta":{%b%b"progressToken":%d}}}' % (ours, b"," if ours else b"", wire)
        body = b"".join((head, members, meta))
        if len(body) > self._max_frame:
            return self._frame_too_large(len(body))
        self._out.append(self._frame(body))
        self._remember(wire, SentRequest(CALL, messages.CALL_TOOL, members, call=id, op=op))
        self._wires[id] = wire
        return None

    def _build_meta(self, sent: SentRequest, wire: int) -> bytes:
        """Only calls have progress. The caller's keys come first."""
        ours = self._meta_members
        if sent.kind != CALL:
            return b"{%b}" % ours if ours else b""
        extra = self.codec.encode(sent.extra)[1:-1] + b"," if sent.extra else b""
        return b'{%b%b%b"progressToken":%d}' % (extra, ours, b"," if ours else b"", wire)

    def _caller_meta(self, op: Any) -> dict[str, Any] | Failure | None:
        """The keys that the caller adds to `_meta`, without the protocol's own."""
        meta = getattr(op, "context", {}).get(requests.CONTEXT)
        if not isinstance(meta, dict) or not meta:
            return None
        extra = messages.own_meta(meta)
        encoded = self._json(extra)
        return encoded if isinstance(encoded, Failure) else extra

    def _refuse_unannounced(self, op: Any) -> Failure | None:
        """Why the server cannot be asked this: it did not announce the capability."""
        if type(op) is InvokeTool:
            if op.tool in self._tools:
                return None
            return Failure(Code.TOOL_NOT_EXPOSED, f"the server does not offer {op.tool!r}")
        if type(op) is CheckHealth:
            return None if self.has_probe else _undeclared("ping, which this revision of MCP does not have")
        if type(op) is SetLogLevel and op.level not in messages.LEVELS:
            return Failure(Code.INVALID_INPUT, f"the level must be one of {', '.join(messages.LEVELS)}")
        needed = requests.CAPABILITIES[type(op)]
        settings = self.capabilities.get(needed)
        if not isinstance(settings, dict):
            return _undeclared(needed)
        unwatchable = type(op) is WatchResource and settings.get("subscribe") is not True
        return _undeclared("subscriptions to resources") if unwatchable else None

    def notify(self, op: PluginOp | HostOp) -> Failure | None:
        """Tell a server that asks for roots that they have changed."""
        if not isinstance(op, ChangeRoots):
            return super().notify(op)
        refusal = None if self.state == READY else self._refuse_unless_ready()
        if refusal is None and self.era == HANDSHAKE and "roots" in self.offers:
            self._write(b'{"jsonrpc":"2.0","method":"%b"}' % messages.ROOTS_CHANGED.encode())
        return refusal

    def cancel(self, id: CallId, reason: str) -> None:
        if self._questioned.pop(id, None) is not None:
            self._incoming = {number: asked for number, asked in self._incoming.items() if not _is_of(asked, id)}
        if id in self._watching:
            self._watching.remove(id)
        super().cancel(id, reason)

    def close(self, reason: str) -> None:
        """MCP has no message for it: the host closes the server's input."""
        self._listing = None
        self._step("close")

    def _conclude(self, sent: SentRequest, message: Any, frame: bytes) -> list[Event]:
        if sent.kind == HELLO:
            return self._take_greeting(message) if self._may("welcome") else []  # we are closing
        if sent.kind == PAGE:
            return self._take_page(message, len(frame))
        if sent.kind == LISTEN:
            return self._end_subscription(sent, _why_subscription_ended(message))
        value, failure = requests.read_answer(sent.op, sent.method, message, frame, self.codec)
        if isinstance(value, InputRequired):
            return self._take_questions(sent, value, frame)
        return _finish(sent, value, failure)

    def _conclude_unreadable(self, sent: SentRequest, failure: Failure) -> list[Event]:
        if sent.kind == HELLO:
            return self._fault(failure) if self._may("welcome") else []
        if sent.kind == PAGE:
            return self._skip_list(failure)
        if sent.kind == LISTEN:
            return self._end_subscription(sent, failure.message)
        return _finish(sent, None, failure)

    # Questions inside an answer: the modern era.

    def _take_questions(self, sent: SentRequest, required: InputRequired, frame: bytes) -> list[Event]:
        """The server needs input: each question is reported, and with the last answer the call is repeated."""
        assert sent.call is not None
        sent.rounds += 1
        questions = self._read_questions(sent, required, frame)
        if isinstance(questions, Failure):
            return _finish(sent, None, questions)
        sent.state = required.state
        sent.answers = {}
        sent.waiting = len(questions)
        if not questions:
            failure = self._put(sent, self._build_answers(sent))
            return [] if failure is None else _finish(sent, None, failure)
        self._questioned[sent.call] = sent
        return [event for question in questions for event in self._accept_request(question, sent.call)]

    def _read_questions(
        self, sent: SentRequest, required: InputRequired, frame: bytes
    ) -> list[IncomingRequest] | Failure:
        if sent.refusal is not None:
            return sent.refusal
        if sent.method not in messages.ANSWERS_LATER or self.era == HANDSHAKE:
            return malformed(f"the answer to {sent.method} requests input, which is not allowed here", frame)
        if sent.rounds > MAX_ROUNDS or len(required.questions) > MAX_QUESTIONS:
            what = f"the server asked more than {MAX_QUESTIONS} questions at once, or in more than {MAX_ROUNDS} rounds"
            return Failure(Code.PLUGIN_ERROR, what, origin=Origin.PLUGIN)
        state = 0 if required.state is None else len(self.codec.encode(required.state))
        if len(sent.members) + state > messages.MAX_LINE - ANSWER_ROOM:
            what = f"the server's state has {state:,} bytes, so that it could not be sent back with the call"
            return Failure(Code.FRAME_TOO_LARGE, what, origin=Origin.PLUGIN)
        questions: list[IncomingRequest] = []
        for key, entry in required.questions.items():
            question = as_object(entry)
            method = messages.as_text(question.get("method"))
            op = client_features.read_request(method, as_object(question.get("params")))
            if not isinstance(op, ClientQuestion):
                return malformed(f"the answer to {sent.method} requests input of an unsupported kind: {op}", frame)
            op.during = sent.op
            if client_features.CAPABILITIES[method] not in self.offers:
                what = f"the server wants {client_features.CAPABILITIES[method]}, which is not granted"
                return Failure(Code.CAPABILITY_NOT_ALLOWED, what, origin=Origin.POLICY)
            questions.append(InputRequest(op, sent, key))
        return questions

    def _build_answers(self, sent: SentRequest) -> bytes:
        """The members that are added to a repeated call."""
        answers = b',"inputResponses":%b' % self.codec.encode(sent.answers) if sent.rounds else b""
        state = b"" if sent.state is None else b',"requestState":%b' % self.codec.encode(sent.state)
        return answers + state

    def finish(self, id: CallId, value: Any = None, failure: Failure | None = None) -> None:
        request = self._incoming.get(id)
        if isinstance(request, InputRequest):
            del self._incoming[id]
            self._answer_question(request, value, failure)
        else:
            super().finish(id, value, failure)

    def _answer_question(self, request: InputRequest, value: Any, failure: Failure | None) -> None:
        """Keep one answer; with the last one the call is repeated."""
        sent = request.sent
        if sent.call is None or self._questioned.get(sent.call) is not sent:
            self.dropped += 1
            return
        answer: Any = client_features.build_result(request.op, value) if failure is None else failure
        encoded = None if isinstance(answer, Failure) else self._json(answer)
        if isinstance(encoded, Failure):
            answer = encoded
        if isinstance(answer, Failure):
            refusal = client_features.build_refusal(request.op)
            sent.refusal = answer if refusal is None else sent.refusal
            answer = refusal
        if answer is not None:
            sent.answers[request.key] = answer
        sent.waiting -= 1
        if sent.waiting:
            return
        del self._questioned[sent.call]
        unsent = self._put(sent, self._build_answers(sent))
        if unsent is not None:  # too large: repeat the call without answers; the server may not ask again
            sent.refusal, sent.answers = unsent, {}
            self._put(sent, self._build_answers(sent))

    def _encode_result(self, asked: IncomingRequest, value: Any) -> bytes | Failure:
        result = client_features.build_result(asked.op, value)
        return result if isinstance(result, Failure) else self._json(result)

    def _encode_failure(self, asked: IncomingRequest, failure: Failure) -> tuple[int, str, dict[str, Any] | None]:
        return errors.to_error(type(asked.op), failure)

    # Requests and notifications of the server.

    def _take_request(self, id: Id, name: str, params: dict[str, Any], line: bytes) -> list[Event]:
        if self.era == MODERN:
            return noise(line, "a request from the server, which this revision of MCP does not have")
        if name == messages.PING:
            self._write_result(id, b"{}")
            return []
        op = client_features.read_request(name, params)
        capability = client_features.CAPABILITIES.get(name)
        if op is None or capability not in self.offers:
            self._write_error(id, errors.METHOD_NOT_FOUND, f"method not found: {name}")
            return [] if capability is None else noise(line, f"{name} needs {capability}, which is not granted")
        if isinstance(op, str):
            self._write_error(id, errors.INVALID_PARAMS, f"{name}: {op}")
            return []
        return self._accept_request(IncomingRequest(id, op))

    def _take_notification(self, name: str, params: dict[str, Any], line: bytes) -> list[Event]:
        if name == messages.MESSAGE:
            log = messages.read_log(params, self.codec.encode)
            return noise(line, log) if isinstance(log, str) else [Notified(log)]
        if not self._greeted:
            return noise(line, f"{name[:HEAD_BYTES]} before the greeting was answered")
        if name in LIST_CHANGED:
            self._stale |= {listed.name for listed in LISTS if listed.capability == LIST_CHANGED[name]}
            return self._relist()
        if name == messages.UPDATED:
            uri = params.get("uri")
            return [Notified(ChangeResource(uri))] if isinstance(uri, str) else noise(line, "an update without a uri")
        if name == messages.ACKNOWLEDGED:
            return self._take_acknowledgement(params)
        if name == messages.CANCELLED:
            return self._take_cancellation(params)
        return [] if name in messages.UNREMARKABLE else noise(line, f"unknown notification {name[:HEAD_BYTES]!r}")

    def _take_cancellation(self, params: dict[str, Any]) -> list[Event]:
        """The server cancels a request of its own or, in the modern era, ends our subscription."""
        if self.era == HANDSHAKE:
            return self._cancel_incoming(params)
        id: Any = params.get("requestId")
        ended = self._outstanding.get(id) if type(id) is int else None
        if ended is None or ended.kind != LISTEN:
            return []
        del self._outstanding[id]
        return self._end_subscription(ended, ENDED)

    # The one subscription of the modern era.

    def _subscribe(self, *, watching: bool = False) -> Failure | None:
        """Subscribe to every change that the server announces; this replaces the subscription before it."""
        wanted: dict[str, Any] = {
            f"{kind}ListChanged": True
            for kind in ("tools", "prompts", "resources")
            if as_object(self.capabilities.get(kind)).get("listChanged") is True
        }
        if self._watched or watching:
            wanted["resourceSubscriptions"] = self._watched
        before, self._subscription = self._subscription, None
        if wanted:
            sent = SentRequest(LISTEN, messages.LISTEN, b'"notifications":%b' % self.codec.encode(wanted))
            failure = self._put(sent)
            if failure is not None:
                self._subscription = before
                return failure
            self._subscription = sent
        for wire in [wire for wire, sent in self._outstanding.items() if sent is before]:
            del self._outstanding[wire]
            self._write_notification(messages.CANCELLED, self._json({"requestId": wire}))
        return None

    def _watch(self, id: CallId, op: WatchResource) -> Failure | None:
        """Subscribe with one resource more, or less; the call ends when the server acknowledges the subscription."""
        before = self._watched
        self._watched = [uri for uri in before if uri != op.uri] + [op.uri] * op.wanted
        failure = self._subscribe(watching=True)
        if failure is not None:
            self._watched = before
        else:
            self._watching.append(id)
        return failure

    def _take_acknowledgement(self, params: dict[str, Any]) -> list[Event]:
        which = as_object(params.get("_meta")).get(messages.SUBSCRIPTION)
        if type(which) is not int or self._outstanding.get(which) is not self._subscription:
            return []  # of a subscription that was replaced since
        watching, self._watching = self._watching, []
        return [CallFinished(call) for call in watching]

    def _end_subscription(self, sent: SentRequest, why: str) -> list[Event]:
        """The server ended or refused a subscription; one that was replaced does not matter."""
        if sent is not self._subscription:
            return []
        watching, self._watching = self._watching, []
        self._subscription = None
        failure = Failure(Code.UNAVAILABLE, why, origin=Origin.PLUGIN)
        return [*noise(b"", why), *(CallFinished(call, None, failure) for call in watching)]


def _finish(sent: SentRequest, value: Any, failure: Failure | None) -> list[Event]:
    assert sent.call is not None
    return [CallFinished(sent.call, value, failure)]


def _is_of(request: IncomingRequest, call: CallId) -> bool:
    """Whether a question came inside an answer to this call."""
    return isinstance(request, InputRequest) and request.sent.call == call


def _why_subscription_ended(message: Any) -> str:
    if message.error is ABSENT:
        return ENDED
    return f"the server does not report its changes: {error_text(as_object(message.error))}"


def _undeclared(what: str) -> Failure:
    return Failure(Code.CAPABILITY_NOT_DECLARED, f"the server does not announce {what}")
