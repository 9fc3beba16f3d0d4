"""What the tests of all contracts share."""

from __future__ import annotations

from tests.support.codecs import codec

__all__ = ["codec"]
