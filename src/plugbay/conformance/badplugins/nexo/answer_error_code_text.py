"""Answers with an error whose code is a text.

The plugin's own error all the same: plugin_error.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=request["id"], error={"code": "-33404", "message": "no"})
child.serve()
