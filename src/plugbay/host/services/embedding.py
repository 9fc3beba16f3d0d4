"""Texts to vectors: the port, and an embedder that needs no model, no network and no other library.

Pure. Knows nothing of where vectors are kept.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Protocol
from zlib import crc32

from plugbay.host.services.concepts import words

DIMENSIONS = 256
"""A sentence has some hundred distinct trigrams; with 256 places few of them collide and a record stays 1 KiB."""

MAX_CHARACTERS = 8_192
"""Of one text; what follows is not looked at. Takes some ten milliseconds at most, and the loop waits for it."""

GRAM = 3
"""Characters of a piece: long enough to be telling, short enough that forms of a word share most of them."""


class Embedder(Protocol):
    """Makes vectors that are near each other for texts that mean similar things."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, all of the same length; raises `CallFailed`."""
        ...


class HashingEmbedder:
    """Similar spelling gives similar vectors: each word is cut into trigrams, each trigram counts at a hashed place.

    The same text gives the same vector on every machine and in every release, because vectors are stored.
    """

    def __init__(self, dimensions: int = DIMENSIONS) -> None:
        if dimensions < 1:
            raise ValueError(f"a vector has at least one dimension, not {dimensions}")
        self.dimensions = dimensions

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [self.vector(text) for text in texts]

    def vector(self, text: str) -> list[float]:
        """Of unit length; all zeros when the text has no words."""
        vector = [0.0] * self.dimensions
        for gram, count in Counter(_grams(text[:MAX_CHARACTERS])).items():
            hashed = crc32(gram.encode("utf-8", "surrogatepass"))
            # A sign from another bit lets collisions cancel out instead of adding up.
            sign = 1 if hashed & 0x8000_0000 else -1
            vector[(hashed & 0x7FFF_FFFF) % self.dimensions] += sign * math.sqrt(count)
        length = math.hypot(*vector)
        return [value / length for value in vector] if length else vector


def _grams(text: str) -> list[str]:
    """The trigrams of each word; its ends count as characters, so that beginnings weigh as beginnings."""
    padded = [f" {word} " for word in words(text)]
    return [word[start : start + GRAM] for word in padded for start in range(len(word) - GRAM + 1)]
