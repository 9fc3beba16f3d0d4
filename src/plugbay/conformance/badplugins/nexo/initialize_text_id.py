"""Answers initialize with its id as a text.

1 and "1" are two ids: timeout.
"""

from __future__ import annotations

import child

child.read()
child.say(id="1", result=child.hello())
child.serve()
