"""`@requirement("rune:frame:line")`: which clause of a contract a test proves."""

from __future__ import annotations

import pytest

requirement = pytest.mark.requirement
