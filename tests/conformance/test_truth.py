"""A frame that is not whole is neither sent nor compared, unless somebody wants placeholders; and then loudly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plugbay.conformance.exchanges import Said
from plugbay.conformance.speech import ANSWER, Turn
from plugbay.conformance.truth import Lie, check
from plugbay.link.recording import Frame

WHOLE = Said(4, Frame(0, 1, "plugin", 10, {"a": "***"}), Turn(ANSWER, "", 1))


def tried(said: Said, allow: bool = False) -> list[str]:
    heard: list[str] = []
    check(said, allow, heard.append)
    return heard


def test_a_whole_frame_is_true() -> None:
    assert tried(WHOLE) == []


def test_a_redacted_frame_is_a_lie_and_its_places_are_named() -> None:
    redacted = replace(WHOLE, frame=replace(WHOLE.frame, redacted=("/a", "")))
    with pytest.raises(Lie, match="the plugin's answer in line 4 was redacted at /a, the whole of it"):
        tried(redacted)
    assert tried(redacted, allow=True) == ["the plugin's answer in line 4 has placeholders at /a, the whole of it"]


def test_a_frame_that_was_cut_is_a_lie_whatever_is_allowed() -> None:
    cut = replace(WHOLE, frame=replace(WHOLE.frame, cut="sha256:00", raw=b"{"))
    with pytest.raises(Lie, match="too long to be recorded whole"):
        tried(cut, allow=True)
