"""The facts that every plugin of rune shares: the name of its manifest and its timeouts.

Here and not in `manifest`, so that a host knows them before it loads the models of the manifest.
"""

from __future__ import annotations

from plugbay.model.spec import Timeouts

FILE_NAME = "rterm-plugin.json"

TIMEOUTS = Timeouts(launch=2.0, handshake=2.0, call=5.0, teardown=0.5, kill=2.0)
"""The contract's four timeouts and the wait for a killed child; an operator may override each."""
