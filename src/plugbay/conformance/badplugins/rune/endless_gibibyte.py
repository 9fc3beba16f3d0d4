"""Writes a gibibyte without a newline before its handshake.

A host must neither keep the bytes nor wait for the newline: malformed_response.
"""

from __future__ import annotations

import os

chunk = b"a" * (1 << 20)
for _ in range(1024):
    os.write(1, chunk)
