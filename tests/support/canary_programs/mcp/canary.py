"""A server of MCP with nothing wrong; broken: in the way that its argument says, and in no other."""

from __future__ import annotations

from serving import KIND, serve  # type: ignore[import-not-found]  # they lie beside this file

if KIND:
    import talking  # type: ignore[import-not-found]
    import working  # type: ignore[import-not-found]

    (getattr(talking, KIND, None) or getattr(working, KIND))()
serve()
