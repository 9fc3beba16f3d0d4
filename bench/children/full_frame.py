"""A frame in which every cell is painted, and its JSON: the same bytes for every contender."""

from __future__ import annotations

from plugbay.sdk.screens.canvas import Canvas

WORDS = "the quick brown fox jumps over the lazy dog 0123456789 "
COLOURS = ((127, 209, 160), (124, 183, 255), (229, 138, 138), (138, 147, 166))

MARKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""What the upper left cell shows: one further with every key."""

PLACEHOLDER = "@"
"""Stands for the mark in a picture that is painted once; no word has it."""


def paint(canvas: Canvas, mark: str) -> None:
    """Every cell, with a colour for each row."""
    text = WORDS * (canvas.width // len(WORDS) + 2)
    for y in range(canvas.height):
        start = y % len(WORDS)
        canvas.text(0, y, text[start : start + canvas.width], fg=COLOURS[y % len(COLOURS)])
    canvas.text(0, 0, mark, fg=COLOURS[0])


def painted(width: int, height: int) -> tuple[bytes, bytes]:
    """The JSON of such a picture, before and after the mark."""
    canvas = Canvas(width, height)
    paint(canvas, PLACEHOLDER)
    before, _, after = canvas.picture().json.partition(PLACEHOLDER.encode())
    return before, after
