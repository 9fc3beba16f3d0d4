"""The facts that every plugin of nexo shares: the name of its manifest and its timeouts.

Here and not in `manifest`, so that a host knows them before it loads the models of the manifest.
"""

from __future__ import annotations

from plugbay.model.spec import Timeouts

FILE_NAME = "nexo-plugin.toml"

TIMEOUTS = Timeouts(handshake=5.0, call=60.0, farewell=5.0, teardown=1.0, kill=2.0)
"""Five seconds to answer `initialize` and five to answer `shutdown`, then one to be gone."""
