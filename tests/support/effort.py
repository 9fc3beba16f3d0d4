"""How much longer than in `make test-all` random tests go on: `PLUGBAY_FUZZ`, a factor that `make prove` sets."""

from __future__ import annotations

import os

EFFORT = int(os.environ.get("PLUGBAY_FUZZ", "1"))
