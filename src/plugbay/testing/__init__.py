"""For people who embed a host and want to test what their application does when plugins misbehave.

    from plugbay.testing import FakePlugin, answers, bad_plugin, fails, faults, in_turn, replay_plugin

The same comes as pytest fixtures wherever plugbay is installed: `fake_plugin`, `bad_plugin`, `replay_plugin`, and
`plugbay_host`. Names are loaded when they are used: pytest loads this for everybody, and most use none of it. Who
writes a plugin wants `plugbay.sdk.testing`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from plugbay.testing import faults
    from plugbay.testing.bad import BadPlugin, bad_plugin
    from plugbay.testing.fake import FakePlugin
    from plugbay.testing.replay import replay_plugin
    from plugbay.testing.script import answers, fails, in_turn

__all__ = ["BadPlugin", "FakePlugin", "answers", "bad_plugin", "fails", "faults", "in_turn", "replay_plugin"]

_HOMES = {
    "BadPlugin": "bad",
    "bad_plugin": "bad",
    "FakePlugin": "fake",
    "replay_plugin": "replay",
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
