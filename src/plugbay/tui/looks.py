"""How the terminal looks: its colours, the sign and the colour of every state, and text that cannot misbehave.

Owns nothing else; knows neither hosts nor widgets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rich.text import Text
from textual.theme import Theme

from plugbay.contracts.mcp.spec import UNKNOWN_VERSION
from plugbay.model.lifecycle import State
from plugbay.model.spec import PluginSpec
from plugbay.model.text import printable


class Sign(NamedTuple):
    """A state at a glance."""

    symbol: str
    colour: str


GREEN, BLUE, AMBER, RED, GREY = "#7fd1a0", "#7cb7ff", "#f0c674", "#ff7b86", "#8a93a6"

INVALID = "invalid"
"""The state of a plugin whose manifest cannot be used; a host has no word for it, because it never loads it."""

SIGNS: Mapping[str, Sign] = {
    State.RUNNING: Sign("●", GREEN),
    State.SPAWNING: Sign("◐", BLUE),
    State.SHUTTING_DOWN: Sign("◑", BLUE),
    State.BACKOFF: Sign("◌", AMBER),
    State.QUARANTINED: Sign("✗", RED),
    INVALID: Sign("✗", RED),
    State.IDLE: Sign("○", GREY),
    State.STOPPED: Sign("○", GREY),
}
"""In the order in which they are counted."""

LEVELS: Mapping[str, str] = {"error": RED, "warn": AMBER, "info": GREEN}
"""Colours of log levels; all others are grey."""

THEME = Theme(
    name="plugbay",
    primary=BLUE,
    secondary="#9aa7ff",
    accent=GREEN,
    success=GREEN,
    warning=AMBER,
    error=RED,
    foreground="#d7dce5",
    background="#0f1218",
    surface="#141821",
    panel="#1b202c",
    dark=True,
    variables={"footer-key-foreground": BLUE, "border-blurred": "#2d3444", "border": BLUE},
)


def words(state: str) -> str:
    """A state as people say it."""
    return state.replace("_", " ")


def kind(spec: PluginSpec, between: str = " ") -> str:
    """`rune 1.0.0`; a server of MCP says its version when it is greeted, and until then there is none."""
    return spec.contract if spec.version == UNKNOWN_VERSION else f"{spec.contract}{between}{safe(spec.version)}"


def safe(text: object) -> str:
    """What a plugin wrote, on one line that cannot move a cursor, forge another line or hide itself."""
    return printable(str(text).encode("utf-8", "backslashreplace")).replace("\t", " ")


def clipped(text: str, width: int) -> Text:
    """The text in exactly `width` columns; what does not fit ends in an ellipsis."""
    shown = Text(text, no_wrap=True, end="")
    shown.truncate(width, overflow="ellipsis", pad=True)
    return shown
