"""Writes without end and without a newline.

Past 1 MiB a line can only be too long, newline or not: malformed_response.
"""

from __future__ import annotations

import os

while True:
    os.write(1, b"a" * 65536)
