"""Nothing wrong: the positive control of this folder."""

from __future__ import annotations

import child
from child import SERVES, serve

SERVES |= {"plugin/cli_dispatch": child.dispatch, "plugin/render": child.render}
serve()
