"""A plugin that nobody serves, seen without running it."""

from __future__ import annotations

import pytest

from plugbay.cli.unserved import unserved

HEAD = """
from plugbay.sdk import Plugin
plugin = Plugin("p")

@plugin.tool()
def greet(name): return plugin.config["word"] + name
"""


@pytest.mark.parametrize(
    "source",
    [
        HEAD,
        HEAD.replace('Plugin("p")', 'Plugin.from_manifest("…")'),
        HEAD.replace("from plugbay.sdk import Plugin", "import plugbay.sdk as s").replace(' Plugin("', ' s.Plugin("'),
    ],
)
def test_a_plugin_that_is_declared_and_nothing_else_is_not_served(source: str) -> None:
    assert unserved(source.encode()) == "plugin"


@pytest.mark.parametrize(
    "source",
    [
        f"{HEAD}\nplugin.run()",
        f"{HEAD}\nif __name__ == '__main__':\n    plugin.run()",
        f"{HEAD}\ndef main():\n    plugin.run()\nmain()",
        f"{HEAD}\nimport app\napp.serve(plugin)",
        f"{HEAD}\nserve = plugin.run\nserve()",
        f"{HEAD}\nother = Plugin('q')",
        "from app import plugin",
        "def make():\n    return Plugin('p')",
        "plugin: Plugin",
        "plugin = make()",
        "no python",
        "",
    ],
)
def test_in_doubt_it_is_served(source: str) -> None:
    assert unserved(source.encode()) is None


def test_a_source_that_is_nested_too_deeply_is_none() -> None:
    assert unserved(b"(" * 100_000) is None
