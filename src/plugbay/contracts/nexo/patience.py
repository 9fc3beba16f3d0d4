"""How long a nexo host waits for each kind of answer.

Owns the contract's numbers and the variables an operator overrides them with. Knows operations by the names of their
classes only, as a spec does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from plugbay.model.errors import Problem
from plugbay.model.spec import Timeouts

TIMEOUTS = Timeouts(handshake=5.0, call=60.0, farewell=5.0, teardown=1.0, kill=2.0)
"""Five seconds to answer `initialize` and five to answer `shutdown`, then one to be gone."""

INIT_TIMEOUT = "NEXO_PLUGIN_INIT_TIMEOUT_MS"

PATIENCE: dict[str, dict[str, float]] = {
    "NEXO_PLUGIN_TOOL_TIMEOUT_MS": {"InvokeTool": 60.0},
    "NEXO_PLUGIN_CHANNEL_TIMEOUT_MS": {"StartChannel": 30.0, "StopChannel": 30.0, "SendOutbound": 60.0},
    "NEXO_PLUGIN_LLM_TIMEOUT_MS": {"Chat": 60.0, "Chat.stream": 300.0},
    "NEXO_PLUGIN_HOOK_TIMEOUT_MS": {"RunHook": 5.0},
    "NEXO_PLUGIN_MEMORY_TIMEOUT_MS": {"UpsertVectors": 30.0, "DeleteVectors": 30.0, "SearchVectors": 10.0},
}
"""The variable that overrides, and the seconds of each operation it overrides."""

_MILLISECONDS = re.compile(r"\+?[0-9]{1,20}")


def patience(environ: Mapping[str, str]) -> tuple[Timeouts, dict[str, float], list[Problem]]:
    """The timeouts, the seconds by operation, and a warning for each variable that says nothing usable."""
    problems: list[Problem] = []
    greeting = _override(environ, INIT_TIMEOUT, problems)
    timeouts = TIMEOUTS if greeting is None else replace(TIMEOUTS, handshake=greeting)
    seconds: dict[str, float] = {}
    for variable, defaults in PATIENCE.items():
        override = _override(environ, variable, problems)
        seconds |= {name: default if override is None else override for name, default in defaults.items()}
    return timeouts, seconds, problems


def _override(environ: Mapping[str, str], variable: str, problems: list[Problem]) -> float | None:
    text = environ.get(variable)
    if text is None:
        return None
    # Unsigned 64 bits, as the contract's own host reads it.
    if _MILLISECONDS.fullmatch(text) and int(text) < 1 << 64:
        return int(text) / 1000
    words = f"{text!r} is not a number of milliseconds, so the default is used"
    problems.append(Problem("invalid_timeout", variable, words, severity="warning"))
    return None
