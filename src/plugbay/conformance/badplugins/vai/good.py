"""Nothing wrong: the positive control of this folder."""

from __future__ import annotations

from child import serve

serve()
