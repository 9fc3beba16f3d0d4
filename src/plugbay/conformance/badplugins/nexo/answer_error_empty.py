"""Answers with an error without code and message.

The plugin's own error all the same: plugin_error.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=request["id"], error={})
child.serve()
