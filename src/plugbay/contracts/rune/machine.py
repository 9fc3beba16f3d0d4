"""The rune conversation: handshake, one request, one response, leave. Both roles.

Owns the order of validation (first failure wins) and which code each breach has. That a good answer only
counts once the child has exited with status 0 is a fact of the spec; the supervisor checks it.

The tool and capability checks belong to the call, not to the greeting, so a child that was greeted before
its call was known is checked exactly like a fresh one: tool first, then capabilities.
"""

from __future__ import annotations

from plugbay.contracts.base import Machine, Misuse, Role
from plugbay.contracts.rune import errors, messages
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallArrived, CallFinished, Closed, Noise, Ready
from plugbay.model.operations import InvokeTool
from plugbay.wire.lines import LineDecoder, TooLong, encode
from plugbay.wire.strict_json import ABSENT, Malformed, Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar

    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import HostOp, PluginOp
    from plugbay.wire.strict_json import Codec

START, GREETING, READY, CALLING, ANSWERED, CLOSED, FAILED = (
    "start greeting ready calling answered closed failed".split()
)


def _transitions() -> dict[tuple[str, str, str], str]:
    both = {
        (START, "greet"): GREETING,
        (GREETING, "hello"): READY,
        (READY, "call"): CALLING,
        (CALLING, "answer"): ANSWERED,
        (ANSWERED, "eof"): CLOSED,
        **{(state, "close"): CLOSED for state in (START, GREETING, READY, CALLING, ANSWERED, CLOSED, FAILED)},
        **{(state, "violation"): FAILED for state in (GREETING, READY, CALLING)},
    }
    leaves = {(state, "eof"): CLOSED for state in (GREETING, READY, CALLING)}
    """A host may go away whenever it likes; a plugin that goes away before its answer has crashed."""
    return {
        **{(Role.HOST, *key): state for key, state in both.items()},
        **{(Role.PLUGIN, *key): state for key, state in {**both, **leaves}.items()},
    }


class RuneMachine(Machine):
    """One rune conversation. HOST is bound to an id and its grants; PLUGIN carries the identity it will declare."""

    __slots__ = ("_call", "_decode", "_lines", "_nonce", "_request_id", "granted", "identity", "plugin_id")

    CONTRACT: ClassVar[str] = "rune"
    FIRST_STATE: ClassVar[str] = START
    TRANSITIONS: ClassVar[dict[tuple[str, str, str], str]] = _transitions()
    SUPPORTS: ClassVar[frozenset[type]] = frozenset({InvokeTool})

    def __init__(
        self,
        role: str,
        codec: Codec,
        *,
        plugin_id: str = "",
        granted: tuple[str, ...] = (),
        nonce: int = 0,
        identity: messages.Identity | None = None,
    ) -> None:
        super().__init__(role, codec)
        self.plugin_id = plugin_id
        self.granted = granted
        self.identity = identity
        self._nonce = nonce
        self._call: CallId | None = None
        self._request_id = ""
        if role == Role.HOST:
            self._lines = LineDecoder(messages.MAX_PLUGIN_LINE)
            self._decode = codec.decoder(messages.HOST_READS, messages.HOST_READS_RAW)
        else:
            self._lines = LineDecoder(messages.MAX_HOST_LINE)
            self._decode = codec.decoder(messages.PLUGIN_READS, messages.PLUGIN_READS_RAW)

    # What the peer does.

    def receive(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        for line in self._lines.feed(data):
            if self.state in (FAILED, CLOSED):
                break
            events += self._take(line)
        return events

    def receive_eof(self) -> list[Event]:
        if self.state in (FAILED, CLOSED, START):
            return []
        events: list[Event] = []
        rest = self._lines.eof()
        if rest:
            events += self._take(rest)
        if any(isinstance(event, CallArrived) for event in events):
            return events  # the host has nothing more to say, but waits for the answer
        if self._may("eof"):
            self._step("eof")
            return [*events, Closed()]
        if self.state in (GREETING, READY, CALLING):
            expected = {GREETING: "its handshake", READY: "it was asked anything", CALLING: "an answer"}[self.state]
            why = f"the plugin closed its output before {expected}"
            events += self._fault(Failure(Code.CRASHED, why, origin=Origin.PLUGIN))
        return events

    def _take(self, line: bytes | TooLong) -> list[Event]:
        if self.state == ANSWERED or (self.role == Role.PLUGIN and self.state == CALLING):
            why = "output after the answer" if self.role == Role.HOST else "input after the request"
            return [Noise(line if isinstance(line, bytes) else line.head, why)]
        if isinstance(line, TooLong):
            limit = messages.MAX_PLUGIN_LINE if self.role == Role.HOST else messages.MAX_HOST_LINE
            return self._fault(errors.malformed(f"a line is longer than {limit:,} bytes", line.head, limit=limit))
        try:
            message = self._decode(line)
        except Malformed as error:
            what = "blank line" if not line else f"not one JSON object ({error})"
            return self._fault(errors.malformed(f"{what} where {self._expected()} was expected", line))
        return self._READERS[self.role, self.state](self, message, line)

    def _expected(self) -> str:
        return "the handshake" if self.state == GREETING else "the response" if self.role == Role.HOST else "a request"

    def _read_hello(self, message: Any, line: bytes) -> list[Event]:
        verdict = self._judge_hello(message, line)
        if isinstance(verdict, Failure):
            return self._fault(verdict)
        self.identity = verdict
        self._step("hello")
        return [
            Ready(
                {
                    "plugin_id": verdict.plugin_id,
                    "plugin_version": verdict.plugin_version,
                    "exposed_tools": list(verdict.tools),
                    "capabilities": list(verdict.capabilities),
                }
            )
        ]

    def _judge_hello(self, message: Any, line: bytes) -> messages.Identity | Failure:
        """The handshake checks in the published order; the first that fails decides the code."""
        parsed = _parse_manifest(message, line)
        if isinstance(parsed, Failure):
            return parsed
        manifest_version, identity = parsed
        if message.type != "handshake":
            return errors.handshake_failed(f"the first message {_with_type(message.type)}, not type 'handshake'")
        if manifest_version.strip() != messages.PROTOCOL:
            spoken = f"speaks {manifest_version!r}" if manifest_version else "names no protocol_version in its manifest"
            text = f"the plugin {spoken}, this host speaks {messages.PROTOCOL!r}"
            return Failure(Code.PROTOCOL_VERSION_MISMATCH, text)
        if not identity.plugin_id.strip():
            return errors.handshake_failed("plugin_id is blank")
        if not identity.plugin_version.strip():
            return errors.handshake_failed("plugin_version is blank")
        if not identity.tools:
            return errors.handshake_failed("exposed_tools is empty")
        if identity.plugin_id != self.plugin_id:
            return errors.handshake_failed(f"the plugin calls itself {identity.plugin_id!r}, not {self.plugin_id!r}")
        return identity

    def _read_early(self, message: Any, line: bytes) -> list[Event]:
        return self._fault(errors.malformed("a second message came before the first request", line))

    def _read_response(self, message: Any, line: bytes) -> list[Event]:
        problem = _response_problem(message, self._request_id)
        if problem:
            return self._fault(errors.malformed(problem, line))
        call, self._call = self._call, None
        assert call is not None
        self._step("answer")
        if message.status == "error":
            return [
                CallFinished(call, failure=errors.from_wire(message.error.get("code") or "", message.error["message"]))
            ]
        return [CallFinished(call, None if message.output is ABSENT else message.output)]

    def _read_greeting(self, message: Any, line: bytes) -> list[Event]:
        if message.type != "handshake":
            return self._fault(errors.handshake_failed(f"the first message of the host {_with_type(message.type)}"))
        assert self.identity is not None
        self._say(messages.handshake_reply(self.codec, self.identity))
        self._step("hello")
        version = message.protocol_version
        return [Ready({"protocol_version": "" if version is ABSENT else version})]

    def _read_request(self, message: Any, line: bytes) -> list[Event]:
        well_formed = (
            message.type == "request" and isinstance(message.request_id, str) and isinstance(message.tool_name, str)
        )
        if not well_formed:
            return self._fault(errors.malformed("the host sent a message that is not a request", line))
        self._request_id = message.request_id
        self._step("call")
        context = message.context if isinstance(message.context, dict) else {}
        given = {} if message.input is ABSENT else message.input
        return [CallArrived(message.request_id, InvokeTool(message.tool_name, given, context))]

    _READERS: ClassVar[dict[tuple[str, str], Callable[[RuneMachine, Any, bytes], list[Event]]]] = {
        (Role.HOST, GREETING): _read_hello,
        (Role.HOST, READY): _read_early,
        (Role.HOST, CALLING): _read_response,
        (Role.PLUGIN, GREETING): _read_greeting,
        (Role.PLUGIN, READY): _read_request,
    }

    # What we do.

    def greet(self) -> None:
        self._step("greet")
        if self.role == Role.HOST:
            self._say(messages.handshake_request(self.codec))

    def call(self, id: CallId, op: PluginOp | HostOp) -> Failure | None:
        if self.role != Role.HOST or type(op) not in self.SUPPORTS:
            raise Misuse(f"rune cannot carry {type(op).__name__} from {self.role}")
        if not isinstance(id, int):
            raise Misuse("rune numbers its calls")
        assert isinstance(op, InvokeTool)
        assert self.identity is not None, "called before Ready"
        refusal = _tool_problem(op.tool, self.identity) or _capability_problem(self.granted, self.identity)
        if refusal:
            return refusal
        self._request_id = messages.request_id(self._nonce, id)
        try:
            body = messages.execute_request(self.codec, self._request_id, op.tool, op.context, op.input)
        except Unencodable as error:
            return Failure(Code.INVALID_INPUT, f"the input cannot be sent as JSON: {error}")
        self._step("call")
        self._call = id
        self._say(body)
        return None

    def notify(self, op: PluginOp | HostOp) -> None:
        raise Misuse("rune has no notifications")

    def cancel(self, id: CallId, reason: str) -> None:
        """rune has no message for it: the child is killed, and its output is ignored."""
        if self._may("violation"):
            self._step("violation")

    def finish(self, id: CallId, value: Any = None, failure: Failure | None = None) -> None:
        if self.role != Role.PLUGIN or id != self._request_id:
            raise Misuse(f"{id!r} is not the request that waits for an answer")
        self._step("answer")
        self._say(self._response(value, failure))

    def _response(self, value: Any, failure: Failure | None) -> bytes:
        if failure is not None:
            return messages.error_response(self.codec, self._request_id, *errors.to_wire(failure))
        try:
            body = messages.ok_response(self.codec, self._request_id, value)
        except Unencodable as error:
            return messages.error_response(
                self.codec, self._request_id, "internal", f"the result cannot be sent: {error}"
            )
        if len(body) > messages.MAX_PLUGIN_LINE:
            text = f"the result is {len(body):,} bytes; a response may have {messages.MAX_PLUGIN_LINE:,}"
            return messages.error_response(self.codec, self._request_id, "internal", text)
        return body

    def progress(self, id: CallId, item: Any) -> None:
        """rune has no progress; reports of a handler are dropped."""

    def close(self, reason: str) -> None:
        """rune has no shutdown message: the host closes stdin."""
        self._step("close")

    @property
    def pending(self) -> int:
        return self._lines.pending

    @property
    def satisfied(self) -> bool:
        return self.role == Role.HOST and self.state == ANSWERED

    def _say(self, body: bytes) -> None:
        self._out.append(encode(body))


def _parse_manifest(message: Any, line: bytes) -> tuple[str, messages.Identity] | Failure:
    """The handshake's fields with their types checked; a missing manifest reads as an empty one."""
    manifest = {} if message.manifest in (ABSENT, None) else message.manifest
    if not isinstance(manifest, dict) or not isinstance(message.type, str | type(ABSENT) | None):
        return errors.malformed("the handshake's manifest is not an object", line)
    texts = [manifest.get(key) for key in ("protocol_version", "plugin_id", "plugin_version")]
    lists = [manifest.get(key) for key in ("exposed_tools", "capabilities")]
    if not all(text is None or isinstance(text, str) for text in texts) or not all(map(_is_text_list, lists)):
        return errors.malformed("a field of the handshake's manifest has the wrong type", line)
    version, plugin_id, plugin_version = (text or "" for text in texts)
    tools, capabilities = (tuple(names or ()) for names in lists)
    return version, messages.Identity(plugin_id, plugin_version, tools, capabilities)


def _with_type(type: Any) -> str:
    return "has no type" if type is ABSENT else f"has type {type!r}"


def _is_text_list(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(item, str) for item in value))


def _response_problem(message: Any, request_id: str) -> str | None:
    """The first problem of a response, in the published order; None when it is valid."""
    error = None if message.error in (ABSENT, None) else message.error
    if message.type != "response":
        return f"a message that {_with_type(message.type)} where a response was expected"
    if message.request_id is ABSENT:
        return f"the response has no request_id; the request has {request_id!r}"
    if message.request_id != request_id:
        return f"request_id {message.request_id!r} is not the one that was asked ({request_id!r})"
    if message.metadata not in (ABSENT, None) and not isinstance(message.metadata, dict):
        return "metadata is not an object"
    if message.status == "ok":
        return None if error is None else "status ok together with an error"
    if message.status is ABSENT:
        return "the response has no status"
    if message.status != "error":
        return f"status {message.status!r} is neither 'ok' nor 'error'"
    if not isinstance(error, dict) or not isinstance(error.get("code") or "", str):
        return "status error without an error object"
    text = error.get("message")
    return None if isinstance(text, str) and text.strip() else "the error has no message"


def _tool_problem(tool: str, identity: messages.Identity) -> Failure | None:
    if tool in identity.tools:
        return None
    offered = ", ".join(identity.tools)
    return Failure(Code.TOOL_NOT_EXPOSED, f"the plugin does not expose {tool!r}; it exposes {offered}")


def _capability_problem(granted: tuple[str, ...], identity: messages.Identity) -> Failure | None:
    """Declared capabilities against the grants, entry by entry; the first offence decides."""
    if granted and not identity.capabilities:
        wanted = ", ".join(granted)
        return Failure(Code.CAPABILITY_NOT_DECLARED, f"{wanted} granted, but the handshake declares no capabilities")
    seen: set[str] = set()
    for name in identity.capabilities:
        if not name.strip() or name != name.strip() or name in seen:
            what = "declared twice" if name in seen else "blank or padded"
            return Failure(Code.CAPABILITY_NOT_DECLARED, f"capability {name!r} is {what} in the handshake")
        if name not in granted:
            hint = f"--grant {name} grants it for this run, grants in plugbay.toml permanently"
            text = f"the plugin uses {name!r}, which was not granted"
            return Failure(Code.CAPABILITY_NOT_ALLOWED, text, detail={"hint": hint})
        seen.add(name)
    return None
