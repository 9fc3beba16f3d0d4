"""Answers initialize with keys nobody knows.

Unknown keys are ignored: accepted.
"""

from __future__ import annotations

import child

child.greet(capabilities={"x": 1}, tools=[{**child.TOOL, "strict": True}])
child.serve()
