"""Detects the contract of a host from its first line or frame. Pure: bytes in, a name out.

    {"type": …}                             rune
    {"method": "initialize", "params": …}   MCP, if the client sends its name or a revision; kaged, if the daemon
                                            sends its version or the plugin's name; else nexo
    {"method": …}                           kaged, when only its hosts ask for that; MCP, when the method has a slash or
                                            its `_meta` a revision; else nexo: both may ask anything
    Content-Length: … {"type": …}           vai, whose frames may have other headers, and those first
    Content-Length: … anything else         ainb, whose plugins leave when a frame is broken
    anything else                           nexo, whose plugins skip a line they cannot read

Blank lines are skipped; nothing precedes a frame. The bytes stay unread: the machine gets them from the first one.
"""

from __future__ import annotations

from plugbay.wire.strict_json import Malformed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Protocol

    from plugbay.wire.strict_json import Codec

    Owns = Callable[[str], bool]

    class Named(Protocol):
        """The part of a plugin that has names under kaged."""

        @property
        def id(self) -> str: ...
        @property
        def tools(self) -> Mapping[str, object]: ...
        @property
        def methods(self) -> Mapping[str, object]: ...


RUNE, NEXO, KAGED, AINB, VAI, MCP = "rune", "nexo", "kaged", "ainb", "vai", "mcp"

MAX_FIRST_LINE = 4 << 20
"""Bytes looked at: the longest line any of the contracts allows, as a greeting that carries configuration may be.

A longer frame is ainb's, which allows it: a greeting of vai is short.
"""

FRAME = b"content-length"
"""How a frame begins, in any case of letters."""

MAX_NAME = 64
"""Bytes of a header's name that are looked at: the longest in use has forty."""

NAME = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")

KAGED_ALPHABET = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
KAGED_GREETING = ("daemon_version", "plugin_name")
KAGED_METHODS = ("initialized", "health.check", "ping")
KAGED_HOOK = "kaged.hook."

MCP_GREETING = ("protocolVersion", "clientInfo")
MCP_META = "io.modelcontextprotocol/"
"""Prefix of the keys in `_meta` of every request of a modern MCP client, which sends no greeting."""


def detect(codec: Codec, received: bytes, ended: bool = False, owns: Owns = lambda method: False) -> str | None:
    """The contract that `received` opens; None when more bytes are needed to tell, and more may come.

    `owns` tells whether only a host of kaged would call this method of the plugin.
    """
    if received[: len(FRAME)].lower() == FRAME:
        return _contract_of_frame(codec, received, ended)
    if _has_header(received):
        verdict = _is_vai(codec, received)
        if verdict or (verdict is None and not ended):
            return VAI if verdict else None
    line, newline, _ = received.lstrip().partition(b"\n")
    if not (newline or ended or len(line) > MAX_FIRST_LINE):
        return None
    if not line:
        return RUNE  # the host left without a message; the lightest way out
    return NEXO if len(line) > MAX_FIRST_LINE else _contract_of(codec, line, owns)


def _contract_of_frame(codec: Codec, received: bytes, ended: bool) -> str | None:
    verdict = _is_vai(codec, received)
    if verdict is None and not ended and len(received) <= MAX_FIRST_LINE:
        return None
    return VAI if verdict else AINB


def _has_header(received: bytes) -> bool:
    """Whether a line begins as a header does; no line of JSON does."""
    name, colon, _ = received[:MAX_NAME].partition(b":")
    return bool(colon and name[:1].isalpha() and NAME.issuperset(name))


def _is_vai(codec: Codec, received: bytes) -> bool | None:
    """Whether the first frame is vai's; None while there is no whole frame, and one may still come."""
    from plugbay.wire.content_length import OPEN_HEADERS, STRICT_HEADERS, ContentLengthDecoder

    for rules in (OPEN_HEADERS, STRICT_HEADERS):  # ainb reads some headers that vai does not
        frames = ContentLengthDecoder(rules).feed(received)
        if not frames:
            return None
        if isinstance(frames[0], bytes):
            message = _message(codec, frames[0])
            return "method" not in message and ("type" in message or "protocol" in message)
    return False


def _contract_of(codec: Codec, line: bytes, owns: Owns) -> str:
    message = _message(codec, line)
    if "type" in message:
        return RUNE
    if _is_kaged(message, owns):
        return KAGED
    return MCP if _is_mcp(message) else NEXO


def _message(codec: Codec, text: bytes) -> dict[str, Any]:
    """The decoded object; empty if it is none."""
    try:
        message = codec.decode(text)
    except Malformed:
        return {}
    return message if isinstance(message, dict) else {}


def _is_kaged(message: dict[str, Any], owns: Owns) -> bool:
    method, params = message.get("method"), message.get("params")
    if not isinstance(method, str):
        return False
    if method == "initialize":
        return isinstance(params, dict) and any(key in params for key in KAGED_GREETING)
    return method in KAGED_METHODS or method.startswith(KAGED_HOOK) or owns(method)


def _is_mcp(message: dict[str, Any]) -> bool:
    method, params = message.get("method"), message.get("params")
    if not isinstance(method, str):
        return False
    said = params if isinstance(params, dict) else {}
    if method == "initialize" and any(key in said for key in MCP_GREETING):
        return True
    meta = said.get("_meta")
    return "/" in method or (isinstance(meta, dict) and any(key.startswith(MCP_META) for key in meta))


def kaged_name(id: str) -> str:
    """An id in kaged's alphabet: lower case, and `-` for all other characters."""
    return "".join(char if char in KAGED_ALPHABET else "-" for char in id.lower())


def is_own_method(plugin: Named, method: str) -> bool:
    """Whether only a host of kaged would ask this plugin for `method`."""
    name, _, tool = method.partition(".")
    return method in plugin.methods or (name == kaged_name(plugin.id) and tool in plugin.tools)
