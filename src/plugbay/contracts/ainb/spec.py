"""The facts that every plugin of ainb shares: the name of its manifest, its timeouts, the end of an idle one.

Here and not in `manifest`, so that a host knows them before it loads the models of the manifest.
"""

from __future__ import annotations

from plugbay.model.spec import Timeouts

FILE_NAME = "manifest.toml"

TIMEOUTS = Timeouts(handshake=15.0, call=30.0, farewell=3.0, teardown=2.0, term=2.0)
"""Seconds. The contract has one number, 5 to leave, which is the third and the fourth together."""

IDLE_SECONDS = 600
"""`idle_reap_secs` of a manifest that does not set it."""
