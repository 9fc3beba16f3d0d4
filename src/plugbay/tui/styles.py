"""Colours, symbols for states, and helpers for text of plugins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rich.text import Text
from textual.theme import Theme

from plugbay.contracts.mcp.spec import UNKNOWN_VERSION
from plugbay.model.lifecycle import PENDING, State
from plugbay.model.spec import PluginSpec
from plugbay.model.text import printable


class Sign(NamedTuple):
    """Symbol and colour of a state."""

    symbol: str
    colour: str


GREEN, BLUE, AMBER, RED, GREY = "#7fd1a0", "#7cb7ff", "#f0c674", "#ff7b86", "#8a93a6"

INVALID = "invalid"
"""State of a plugin with an invalid manifest; the host has no such state, because it never loads it."""

SIGNS: Mapping[str, Sign] = {
    State.RUNNING: Sign("●", GREEN),
    State.SPAWNING: Sign("◐", BLUE),
    State.SHUTTING_DOWN: Sign("◑", BLUE),
    State.BACKOFF: Sign("◌", AMBER),
    PENDING: Sign("◇", AMBER),
    State.QUARANTINED: Sign("✗", RED),
    INVALID: Sign("✗", RED),
    State.IDLE: Sign("○", GREY),
    State.STOPPED: Sign("○", GREY),
}
"""In display order."""

LEVELS: Mapping[str, str] = {"error": RED, "warn": AMBER, "info": GREEN}
"""Colours of log levels; others are grey."""

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


def state_text(state: str) -> str:
    """A state as display text."""
    return state.replace("_", " ")


def version_text(spec: PluginSpec, between: str = " ") -> str:
    """`rune 1.0.0`; without a version for MCP servers that have not been started."""
    return spec.contract if spec.version == UNKNOWN_VERSION else f"{spec.contract}{between}{safe(spec.version)}"


def safe(text: object) -> str:
    """Text of a plugin on one line, without control characters."""
    return printable(str(text).encode("utf-8", "backslashreplace")).replace("\t", " ")


def fit(text: str, width: int) -> Text:
    """The text in exactly `width` columns, with an ellipsis if it does not fit."""
    shown = Text(text, no_wrap=True, end="")
    shown.truncate(width, overflow="ellipsis", pad=True)
    return shown
