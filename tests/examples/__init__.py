"""The example plugins, each called as its users would."""

from __future__ import annotations

EVERY_CONTRACT = "tea-shop"
"""Has a manifest of every contract, and a test of its own."""
