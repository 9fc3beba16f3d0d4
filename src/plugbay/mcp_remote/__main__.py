"""The program of a plugin that is a server on the network: `python -m plugbay.mcp_remote`."""

from __future__ import annotations

import sys

from plugbay.mcp_remote.bridge import main

sys.exit(main())
