"""Answers every call and every hook with the error that the manifest's env names.

Each number becomes tool_not_exposed, not_found, invalid_input or plugin_error.
"""

from __future__ import annotations

import json
import os

from child import greet, say, serve

greet()
serve(lambda request: say(id=request["id"], error=json.loads(os.environ["ERROR"])))
