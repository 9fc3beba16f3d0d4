"""Writes half a line and exits.

Half a line is no answer: crashed.
"""

from __future__ import annotations

import sys

import child

child.greet()
request = child.asked()
child.write(b'{"jsonrpc":"2.0","id":')
sys.exit(3)
