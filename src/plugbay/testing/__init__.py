"""Test helpers for applications that embed a host: plugins that misbehave on request.

    from plugbay.testing import FakePlugin, answers, bad_plugin, fails, faults, in_turn, replay_plugin

Also available as pytest fixtures wherever plugbay is installed: `fake_plugin`, `bad_plugin`, `replay_plugin` and
`plugbay_host`. Names are imported lazily, because pytest loads this package in every project. Plugin authors use
`plugbay.sdk.testing`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from plugbay.testing import faults
    from plugbay.testing.plugins import BadPlugin, FakePlugin, bad_plugin, replay_plugin
    from plugbay.testing.script import answers, fails, in_turn

__all__ = ["BadPlugin", "FakePlugin", "answers", "bad_plugin", "fails", "faults", "in_turn", "replay_plugin"]

_HOMES = {
    "BadPlugin": "plugins",
    "FakePlugin": "plugins",
    "bad_plugin": "plugins",
    "replay_plugin": "plugins",
    "answers": "script",
    "fails": "script",
    "in_turn": "script",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module = importlib.import_module(f"{__name__}.{_HOMES.get(name, name)}")
    value = module if name not in _HOMES else getattr(module, name)
    globals()[name] = value
    return value
