"""Nothing is wrong with this one: the positive control."""

from __future__ import annotations

from child import greet, serve

greet(name="good", methods=["good.good_tool"])
serve()
