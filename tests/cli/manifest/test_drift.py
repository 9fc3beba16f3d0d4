"""Manifests that no longer match their source."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.cli import declarations, lookup
from plugbay.cli.manifest import command, drift
from plugbay.cli.manifest.drift import find_unserved
from plugbay.conformance.reports.report import Status

SOURCE = """\
from plugbay.sdk import Plugin

plugin = Plugin("weather", version="1.0.0")


@plugin.tool(effect="read_only")
def look(city: str = "Lima") -> dict:
    '''Look out.'''
    return {}


plugin.run()
"""

CHANGES = {
    "the version is 1.1.0, not 1.0.0": ("1.0.0", "1.1.0"),
    "the tool look is not in the source": ("def look", "def see"),
    "the schema of look is another": ("city: str", "town: str"),
    "the description of look is another": ("Look out", "Look in"),
    "it asks for files.read": ('version="1.0.0"', 'version="1.0.0", capabilities=["files.read"]'),
}


@pytest.fixture
def weather(tmp_path: Path) -> Path:
    """A plugin with manifests of rune and kaged, written from its source."""
    folder = tmp_path / "weather"
    folder.mkdir()
    (folder / "plugin.py").write_text(SOURCE)
    command.generate(declarations.read(folder / "plugin.py"), folder, ["rune", "kaged"], write=True)
    return folder


def change(folder: Path, old: str, new: str) -> None:
    text = (folder / "plugin.py").read_text()
    assert old in text
    (folder / "plugin.py").write_text(text.replace(old, new))


def warnings(folder: Path, contract: str = "rune") -> list[str]:
    return [problem.message for problem in drift.add_warnings(lookup.find(folder, contract)).problems]


def verdict(folder: Path, contract: str = "rune") -> tuple[Status, str]:
    axis = drift.check_axis(lookup.find(folder, contract))
    assert axis is not None
    assert axis.id == f"{contract}.manifest.drift"
    return axis.status, axis.detail


def test_a_manifest_that_was_just_written_has_not_drifted(weather: Path) -> None:
    assert warnings(weather) == warnings(weather, "kaged") == []
    assert verdict(weather) == verdict(weather, "kaged") == (Status.PASSED, "")


@pytest.mark.parametrize(("words", "edit"), CHANGES.items(), ids=list(CHANGES))
def test_what_has_changed_is_noticed_and_named(weather: Path, words: str, edit: tuple[str, str]) -> None:
    change(weather, *edit)
    assert warnings(weather) == [
        "plugin.py declares something else now than when this was written from it; "
        f"plugbay manifest {weather} writes it anew, --check shows what differs"
    ]
    status, detail = verdict(weather)
    assert status is Status.FAILED
    assert words in detail.splitlines()[0]
    assert f"hint: plugbay manifest {weather} writes it again" in detail
    assert "line: +" in detail


def test_a_change_of_a_function_body_is_no_drift(weather: Path) -> None:
    change(weather, "return {}", "return {'sky': 'blue'}")
    assert warnings(weather) == []
    assert verdict(weather)[0] is Status.PASSED


def test_to_look_runs_nothing(weather: Path, tmp_path: Path) -> None:
    trace = tmp_path / "was-run"
    change(weather, "plugin.run()", f"open({str(trace)!r}, 'w')\nplugin.run()")
    assert len(warnings(weather)) == 1
    assert not trace.exists()
    verdict(weather)
    assert trace.exists()


def test_a_manifest_that_was_written_by_hand_cannot_drift(weather: Path) -> None:
    text = (weather / "rterm-plugin.json").read_text()
    (weather / "rterm-plugin.json").write_text("\n".join(line for line in text.split("\n") if "$comment" not in line))
    change(weather, "def look", "def see")
    found = lookup.find(weather, "rune")
    assert found.spec is not None
    assert drift.add_warnings(found) is found
    assert drift.check_axis(found) is None


def test_a_source_that_serves_nothing_is_noticed(weather: Path) -> None:
    change(weather, "plugin.run()\n", "")
    command.generate(declarations.read(weather / "plugin.py"), weather, ["rune"], write=True)
    assert warnings(weather) == [
        "plugin.py, which this was written from, never calls plugin.run(), so that a host would see it end at once; "
        "make that its last line"
    ]


def test_a_source_that_is_gone_or_broken_is_said_to_be(weather: Path) -> None:
    (weather / "plugin.py").write_text("def")
    assert warnings(weather)[0].startswith("plugin.py, which this was written from, cannot be read: it is no Python: ")
    assert ", line 1;" in warnings(weather)[0]
    status, detail = verdict(weather)
    assert status is Status.FAILED
    assert "SyntaxError" in detail
    (weather / "plugin.py").unlink()
    assert warnings(weather)[0].startswith("plugin.py, which this was written from, is gone")


def test_a_source_with_nothing_left_to_say_is_reported(weather: Path) -> None:
    change(weather, '@plugin.tool(effect="read_only")\n', "")
    assert "there is nothing to write any more: it declares nothing that rune carries" in verdict(weather)[1]


def test_a_plugin_that_is_not_there_has_no_drift(tmp_path: Path) -> None:
    found = lookup.find(tmp_path / "nowhere")
    assert drift.add_warnings(found) is found
    assert drift.check_axis(found) is None


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
    assert find_unserved(source.encode()) == "plugin"


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
    assert find_unserved(source.encode()) is None


def test_a_source_that_is_nested_too_deeply_is_none() -> None:
    assert find_unserved(b"(" * 100_000) is None
