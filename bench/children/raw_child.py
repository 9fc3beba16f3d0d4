"""The lowest floor: echoes bytes. An argument is the core to run on."""

from __future__ import annotations

import os
import sys

if len(sys.argv) > 1:
    os.sched_setaffinity(0, {int(sys.argv[1])})
while data := os.read(0, 65_536):
    os.write(1, data)
