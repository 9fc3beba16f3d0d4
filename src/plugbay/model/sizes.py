"""How large one piece of data may be that has to fit a message."""

from __future__ import annotations

MAX_PAYLOAD = 12_500_000
"""Bytes: as base64, and with the message around it, just below a frame of 16 MiB."""
