"""A plugin with exports of all four kinds, in proper frames; broken: in the way that KIND says, and in no other."""

from __future__ import annotations

import talking  # type: ignore[import-not-found]  # they lie beside this file
import working  # type: ignore[import-not-found]
from child import KIND, serve

if KIND:
    (getattr(talking, KIND, None) or getattr(working, KIND))()
serve()
