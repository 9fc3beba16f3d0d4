"""Exits with 3 before it answers initialize.

An exit nobody asked for, with its status and its last words: crashed.
"""

from __future__ import annotations

import sys

import child

child.read()
sys.exit("cannot go on")
