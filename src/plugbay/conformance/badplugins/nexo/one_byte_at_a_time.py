"""Writes its answer one byte at a time.

A line ends at its newline, however it was cut: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
for byte in child.json.dumps({"id": request["id"], "result": child.SAID}).encode() + b"\n":
    child.write(bytes([byte]))
child.serve()
