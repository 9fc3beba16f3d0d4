"""Answers with the error that it is asked for.

The plugin's own error in its class: plugin's own error.
"""

from __future__ import annotations

import child


def choice(value: object) -> dict[str, object] | None:
    """The error that is written as JSON somewhere in what was asked."""
    if isinstance(value, str) and value.startswith("{"):
        return dict(child.json.loads(value))
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for item in items if (found := choice(item)) is not None), None)


child.greet()
child.serve(lambda request: child.say(id=request["id"], error=choice(request["params"])))
