"""The facts that every plugin of kaged shares: the names of its manifest and its timeouts.

Here and not in `manifest`, so that a host knows them before it loads the models of the manifest.
"""

from __future__ import annotations

from plugbay.model.spec import Timeouts

FILE_NAMES = ("kaged-plugin.yaml", "manifest.yaml")
"""The file name of published plugins, and that of the contract."""

HANDSHAKE, CALL = 10.0, 30.0
"""Seconds to greet, and to answer a tool or a method. The contract names neither."""
TERM_SECONDS = 2.0
"""From SIGTERM to SIGKILL, for a plugin that still runs after its `shutdown_timeout_sec`."""


def timeouts(shutdown: int) -> Timeouts:
    """The plugin has all of the time, for its answer and its exit together; only then comes SIGTERM."""
    return Timeouts(handshake=HANDSHAKE, call=CALL, farewell=float(shutdown), teardown=0.0, term=TERM_SECONDS)
