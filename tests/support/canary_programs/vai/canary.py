"""A plugin with exports of all four kinds, in proper frames; broken: in the way that KIND says, and in no other."""

from __future__ import annotations

import four  # type: ignore[import-not-found]  # noqa: F401  # what it does; it lies beside this file
from child import KIND, serve

if KIND:
    import talking  # type: ignore[import-not-found]
    import working  # type: ignore[import-not-found]

    (getattr(talking, KIND, None) or getattr(working, KIND))()
serve()
