"""A link without hooks is quiet; each hook may be given alone."""

from __future__ import annotations

from plugbay.link.hooks import Hooks


def test_every_hook_is_optional() -> None:
    hooks = Hooks()
    assert [getattr(hooks, name) for name in Hooks.__slots__] == [None] * len(Hooks.__slots__)


def test_a_hook_is_kept_as_given() -> None:
    steps: list[str] = []
    hooks = Hooks(trace=steps.append)
    assert hooks.trace is not None
    hooks.trace("link.call")
    assert steps == ["link.call"]
