"""Which contract a host speaks, told from the first line it writes. Pure: bytes in, a name out.

    {"type": …}                             rune
    {"method": "initialize", "params": …}   kaged, when the daemon says its version or the plugin's name; else nexo
    {"method": …}                           kaged, when only its hosts ask for that; else nexo: both may ask anything
    anything else                           nexo, whose plugins skip a line they cannot read

Blank lines say nothing and are skipped. Whatever was looked at is still the machine's to read, from the first byte.
"""

from __future__ import annotations

from plugbay.wire.strict_json import Malformed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from plugbay.wire.strict_json import Codec

    Owns = Callable[[str], bool]

RUNE, NEXO, KAGED = "rune", "nexo", "kaged"

MAX_FIRST_LINE = 4 << 20
"""Bytes looked at: the longest line any of the contracts allows, as a greeting that carries configuration may be."""

KAGED_GREETING = ("daemon_version", "plugin_name")
KAGED_METHODS = ("initialized", "health.check", "ping")
KAGED_HOOK = "kaged.hook."


def detect(codec: Codec, received: bytes, ended: bool = False, owns: Owns = lambda method: False) -> str | None:
    """The contract that `received` opens; None when more bytes are needed to tell, and more may come.

    `owns` says whether only a host of kaged would ask this plugin for a method.
    """
    line, newline, _ = received.lstrip().partition(b"\n")
    if not (newline or ended or len(line) > MAX_FIRST_LINE):
        return None
    if not line:
        return RUNE  # the host left without a word; the lightest way out
    return NEXO if len(line) > MAX_FIRST_LINE else _contract_of(codec, line, owns)


def _contract_of(codec: Codec, line: bytes, owns: Owns) -> str:
    try:
        message = codec.decode(line)
    except Malformed:
        return NEXO
    if not isinstance(message, dict):
        return NEXO
    if "type" in message:
        return RUNE
    return KAGED if _is_kaged(message, owns) else NEXO


def _is_kaged(message: dict[str, Any], owns: Owns) -> bool:
    method, params = message.get("method"), message.get("params")
    if not isinstance(method, str):
        return False
    if method == "initialize":
        return isinstance(params, dict) and any(key in params for key in KAGED_GREETING)
    return method in KAGED_METHODS or method.startswith(KAGED_HOOK) or owns(method)
