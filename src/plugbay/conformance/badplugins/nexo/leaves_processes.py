"""Leaves a process behind that holds its output.

The whole group is killed: accepted.
"""

from __future__ import annotations

import os

import child

if os.fork() == 0:
    os.setpgid(0, 0)
    os.execvp("sleep", ["sleep", "600"])
child.greet()
child.serve()
