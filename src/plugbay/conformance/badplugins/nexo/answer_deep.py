"""Answers with arrays nested 100,000 deep.

The line cannot be read, so there is no answer: timeout.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.write(b'{"jsonrpc":"2.0","id":%d,"result":' % request["id"] + b"[" * 100_000 + b"]" * 100_000 + b"}\n")
child.serve()
