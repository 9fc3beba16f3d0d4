"""Ends its lines in CR LF.

A line is trimmed: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.write(b'{"jsonrpc":"2.0","id":%d,"result":{"said":"hello"}}\r\n' % request["id"])
child.serve()
