"""Closes its output and stays.

Nothing can be said any more: crashed.
"""

from __future__ import annotations

import os

import child

child.greet()
request = child.asked()
os.close(1)
while True:
    child.read()
