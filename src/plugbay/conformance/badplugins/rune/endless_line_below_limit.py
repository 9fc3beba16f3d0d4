"""Writes half a mebibyte without a newline and then nothing.

Below the limit of a line only the clock can decide: timeout.
"""

from __future__ import annotations

import os
import sys

sys.stdout.write("a" * 500_000)
sys.stdout.flush()
os.read(0, 1)
sys.stdin.read()
