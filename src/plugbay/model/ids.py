"""Names and ids: how a call id looks, how an export is named, which plugin ids are safe.

Pure functions; entropy comes in from the caller.
"""

from __future__ import annotations

CALL_ID_BYTES = 10
"""80 random bits: unguessable, and short enough to read aloud."""


def call_ids(entropy: bytes) -> list[str]:
    """`call_` and the hex of ten random bytes, for every ten."""
    size = 2 * CALL_ID_BYTES
    digits = entropy.hex()
    return ["call_" + digits[at : at + size] for at in range(0, len(digits), size)]


def full_name(plugin_id: str, export_name: str) -> str:
    """An export's unambiguous name."""
    return f"{plugin_id}/{export_name}"


def id_problem(plugin_id: str) -> str | None:
    """Why `plugin_id` cannot name a folder, a log file or a catalogue entry; None when it can."""
    if not plugin_id.strip():
        return "must not be blank"
    if plugin_id in {".", ".."}:
        return "must not be '.' or '..'"
    if "/" in plugin_id or "\\" in plugin_id:
        return "must not contain a path separator"
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in plugin_id):
        return "must not contain control characters"
    if len(plugin_id.encode("utf-8", "surrogatepass")) > 200:
        return "must be at most 200 bytes long"
    return None
