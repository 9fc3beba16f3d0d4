"""Answers initialize with another id.

An answer to something else is no answer: timeout.
"""

from __future__ import annotations

import child

child.read()
child.say(id=2, result=child.hello())
child.serve()
