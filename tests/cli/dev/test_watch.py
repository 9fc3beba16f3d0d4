"""Which saves lead to a reload, with values and with real files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plugbay.cli.dev.watch import PluginWrites, is_watched, watch_saves
from tests.support.loops import run_on
from tests.support.patience import until

ROOT = Path("/plugins/weather")


@pytest.mark.parametrize(
    "name", ["plugin.py", "rterm-plugin.json", "src/lib/a.js", "bin/plugin", "schemas/in.json", "plugbay.toml"]
)
def test_what_an_author_writes_matters(name: str) -> None:
    assert is_watched(ROOT / name, ROOT)


@pytest.mark.parametrize(
    "name",
    [
        "__pycache__/plugin.cpython-311.pyc",
        "lib/__pycache__/x.py",
        ".git/index",
        ".venv/lib/x.py",
        "node_modules/left/pad.js",
        "logs/today.txt",
        "logs",
        "run.log",
        "state.db",
        "state.db-wal",
        ".plugin.py.swp",
        "plugin.py~",
        "#plugin.py#",
        "4913",
        "",
    ],
)
def test_what_programs_write_does_not(name: str) -> None:
    assert not is_watched(ROOT / name, ROOT)


def test_what_lies_elsewhere_does_not_matter_however_the_path_to_the_root_looks() -> None:
    hidden = Path("/home/me/.plugins/logs/weather")
    assert is_watched(hidden / "plugin.py", hidden)
    assert not is_watched(Path("/elsewhere/plugin.py"), hidden)


def test_a_file_written_by_two_calls_in_a_row_is_the_plugins_own() -> None:
    own = PluginWrites()
    assert own.record(["count.txt"]) == []
    assert own.record(["count.txt", "other.txt"]) == ["count.txt"]
    assert own.known == {"count.txt"}


def test_a_save_of_the_authors_in_between_clears_the_suspicion() -> None:
    own = PluginWrites()
    own.record(["count.txt"])
    own.forget()
    assert own.record(["count.txt"]) == []


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_saves_close_together_are_told_together_and_those_of_programs_not_at_all(tmp_path: Path, loop: str) -> None:
    root = tmp_path.resolve()
    (root / "logs").mkdir()

    async def main() -> None:
        stop = asyncio.Event()
        told: list[list[str]] = []

        async def listen() -> None:
            async for names in watch_saves(root, stop):
                told.append(names)

        listening = asyncio.ensure_future(listen())
        # Whether the watch stands already is seen by what it tells.
        number = 0
        while not told and not listening.done():
            number += 1
            (root / "first.py").write_text(str(number))
            await asyncio.sleep(0.05)
        told.clear()
        (root / "logs" / "x.py").write_text("no")
        (root / "a.py").write_text("1")
        (root / "b.py").write_text("2")
        await until(lambda: listening.done() or any("b.py" in names for names in told))
        stop.set()
        await listening
        assert [sorted(set(names) - {"first.py"}) for names in told] == [["a.py", "b.py"]]

    run_on(loop)(main)
