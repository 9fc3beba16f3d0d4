"""Answers every call and every hook with the error that the manifest's env names.

Each number becomes tool_not_exposed, not_found, invalid_input or plugin_error.
"""

from __future__ import annotations

import os

from child import greet, json, say, serve

greet()
serve(lambda request: say(id=request["id"], error=json.loads(os.environ["ERROR"])))
