"""Answers the handshake with bytes that are not UTF-8.

JSON is UTF-8: malformed_response.
"""

from __future__ import annotations

import sys

sys.stdin.readline()
sys.stdout.buffer.write(b'{"type":"handshake","manifest":{"plugin_id":"\xff\xfe\xc0\x80"}}\n')
sys.stdout.flush()
sys.stdin.read()
