"""Fixtures every test may use."""

from __future__ import annotations

from tests.support.loops import run

__all__ = ["run"]
