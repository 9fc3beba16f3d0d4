"""Answers with NaN, which is no JSON.

The line cannot be read, so there is no answer: timeout.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.write(b'{"jsonrpc":"2.0","id":%d,"result":NaN}\n' % request["id"])
child.serve()
