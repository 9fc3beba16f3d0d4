"""The ainb examples at work: a screen fed by a publisher, a command line that asks it, and a plugin in JavaScript."""

from __future__ import annotations

import asyncio
import json
import runpy
import time
from pathlib import Path

import pytest

from plugbay import CallFailed, Code, Host
from plugbay.conformance.engine.plugin_runner import run_conformance
from plugbay.contracts.ainb.manifest import parse
from plugbay.host.discovery.folders import inspect
from plugbay.host.screens.keys import parse_key
from plugbay.host.screens.screens import Frame
from plugbay.sdk.manifests import ainb_manifest, ainb_program
from tests.examples import EVERY_CONTRACT
from tests.support import commands
from tests.support.loops import Run
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = sorted(path.parent for path in EXAMPLES.glob("*/manifest.toml") if path.parent.name != EVERY_CONTRACT)
PUBLISHER, BURNDOWN, REPORT, CLOCK = (
    EXAMPLES / name for name in ("usage-publisher", "usage-burndown", "usage-report", "clock-js")
)
WITH_SDK = [PUBLISHER, BURNDOWN, REPORT]

SCREEN = "usage-burndown/burndown"


def plugbay(*words: str, status: int = 0, folder: Path | None = None) -> tuple[str, str]:
    """What a command prints, on either stream."""
    done = commands.plugbay(*words, cwd=folder)
    assert done.returncode == status, done.stderr
    return done.stdout.decode(), done.stderr.decode()


def calls(path: Path, *rows: tuple[str, str, int]) -> None:
    """A file of calls, in the place of what is there."""
    lines = [json.dumps({"at": at, "model": model, "tokens": tokens}) for at, model, tokens in rows]
    fresh = path.with_suffix(".new")
    fresh.write_text("no call at all\n" + "\n".join(lines) + "\n")
    fresh.replace(path)


def settings(tmp_path: Path, file: Path, budget: int = 1_000) -> Path:
    """The publisher is told of a file, and is shown the folder it is in."""
    config = tmp_path / "plugbay.toml"
    config.write_text(
        f'[plugins.usage-publisher]\nconfig = {{ file = "{file}", budget = {budget} }}\n'
        f'[plugins.usage-publisher.sandbox]\nread = ["{file.parent}"]\n'
    )
    return config


async def seen(host: Host, words: str, size: tuple[int, int] = (80, 24)) -> Frame:
    """The first picture with these words."""
    deadline = time.monotonic() + PATIENCE
    while words not in text(frame := await host.screens.render(SCREEN, *size)):
        assert time.monotonic() < deadline, "\n".join(frame.lines())
        await asyncio.sleep(0.02)
    return frame


def text(frame: Frame) -> str:
    """Everything that is written, on one line."""
    return " ".join(" ".join(frame.lines()).split())


# Every example.


def test_there_are_examples_with_and_without_the_sdk() -> None:
    assert set(FOLDERS) == {*WITH_SDK, CLOCK}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_an_example_has_a_readme_and_no_manifest_problem(folder: Path) -> None:
    told = json.loads(plugbay("inspect", str(folder), "--json")[0])
    assert (told["contract"], told["lifetime"], told["problems"]) == ("ainb", "resident", [])
    assert (folder / "README.md").exists()


@requirement("ainb:examples-code-and-manifest")
@pytest.mark.parametrize("folder", WITH_SDK, ids=lambda path: path.name)
def test_the_code_and_the_manifest_say_the_same(folder: Path) -> None:
    plugin = runpy.run_path(str(folder / "plugin.py"))["plugin"]
    written, problems = parse((folder / "manifest.toml").read_text("utf-8"), folder)
    declared, _ = parse(ainb_manifest(plugin), folder)
    assert problems == []
    assert written is not None and written == declared
    assert (folder / folder.name).read_text("utf-8") == ainb_program()


@exhaustive
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_an_example_conforms(folder: Path) -> None:
    spec = inspect(folder).spec
    assert spec is not None
    report = run_conformance(spec)
    assert [axis for axis in report.axes if axis.status in ("failed", "advice")] == []
    assert report.passed >= 8


# The screen, and who feeds it.


@requirement("ainb:examples-screen-fed-by-publisher")
def test_a_screen_shows_what_another_plugin_publishes(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "data" / "calls.jsonl"
    file.parent.mkdir()
    calls(file, ("2026-11-01", "opus", 300), ("2026-11-02T10:00:00", "haiku", 100), ("2026-10-31", "old", 9))

    async def main() -> None:
        async with Host.load(*WITH_SDK, config=settings(tmp_path, file), grant_all=True) as host:
            frame = await seen(host, "600 of 1.0 k · day 2 of 30 · gone on day 6")
            rows = [line.split()[:3] for line in frame.lines() if "%" in line]
            assert rows == [["all", "models", "400"], ["opus", "300", "75%"], ["haiku", "100", "25%"]]
            calls(file, ("2026-11-03", "opus", 90))
            await seen(host, "910 of 1.0 k · day 3 of 30 · lasts for the month")

    run(main)


@requirement("ainb:examples-chunked")
def test_a_month_travels_in_pieces_and_arrives_whole(run: Run) -> None:
    async def main() -> None:
        pieces: list[int] = []
        async with Host.load(PUBLISHER, BURNDOWN, grant_all=True) as host:
            host.snapshots.listen("usage.calls", lambda _, snapshot: pieces.append(len(snapshot.data)))
            frame = await seen(host, "36.2 M of 100.0 M")
            assert len(pieces) > 2 and max(pieces) < 66_000
            again = await host.screens.render(SCREEN, 80, 24)
            assert again.cells == frame.cells

    run(main)


def test_keys_choose_a_model_and_turn_the_chart(run: Run) -> None:
    async def main() -> None:
        async with Host.load(PUBLISHER, BURNDOWN, grant_all=True) as host:
            await seen(host, "Tokens left in November 2026")
            for key in ("down", "j", "up", "tab"):
                assert host.screens.press(SCREEN, parse_key(key))
            frame = await seen(host, "Tokens used by sonnet")
            row = next(y for y, line in enumerate(frame.lines()) if line.startswith("  opus"))
            left = {"type": "down", "button": {"type": "left"}}
            assert host.screens.mouse(SCREEN, {"kind": left, "col": 5, "row": row})
            await seen(host, "Tokens used by opus")
            assert host.screens.act("usage-burndown", "refresh")
            assert host.screens.press(SCREEN, parse_key("r"))
            await seen(host, "Tokens used by opus")

    run(main)


def test_without_a_publisher_the_screen_says_so(run: Run) -> None:
    async def main() -> None:
        async with Host.load(BURNDOWN, grant_all=True) as host:
            frame = await seen(host, "nobody publishes")
            assert not frame.redraw
            small = await host.screens.render(SCREEN, 20, 5)
            assert small.lines()[0] == "needs 44x16"

    run(main)


def test_a_publisher_of_another_version_is_named_and_nothing_is_guessed(run: Run) -> None:
    async def main() -> None:
        async with Host.load(BURNDOWN, grant_all=True) as host:
            await seen(host, "nobody publishes")
            piece = {"version": 7, "published_ns": 1, "chunk_index": 0, "is_final": True, "data": {}}
            host.snapshots.publish("usage.calls", json.dumps(piece).encode())
            await seen(host, "the publisher writes version 7, and this plugin reads version 1")

    run(main)


@exhaustive
def test_a_screen_can_be_shown_and_saved_by_a_command(tmp_path: Path) -> None:
    words = ["render", "usage-burndown", "--plugins", str(EXAMPLES), "--grant", "event_bus=usage.*"]
    shown, _ = plugbay(*words, "--size", "96x28", "--key", "down", "--key", "tab", folder=tmp_path)
    assert "Tokens used by sonnet in November 2026" in shown
    plugbay(*words, "--svg", "usage.svg", folder=tmp_path)
    saved = (tmp_path / "usage.svg").read_text("utf-8")
    assert "Tokens left in November 2026" in saved.replace("&#160;", " ")


# The command line.


@exhaustive
@requirement("ainb:examples-command-line")
def test_a_command_line_asks_another_plugin_and_its_status_is_a_check() -> None:
    words = ["run", "--plugins", str(EXAMPLES), "--grant-all", "usage"]
    assert plugbay(*words)[0].startswith("2026-11: 63,781,095 of 100,000,000 tokens\n  sonnet ")
    assert plugbay(*words, "--by", "day", "--csv")[0].splitlines()[:2] == ["day,tokens", "1,1123465"]
    assert plugbay(*words, "--limit", "63.9M")[1] == ""
    over = plugbay(*words, "--limit", "60M", status=1)[1]
    assert over == "usage: 63,781,095 tokens in 2026-11, the limit is 60,000,000\n"
    assert "invalid choice: 'week'" in plugbay(*words, "--by", "week", status=2)[1]


def test_a_command_line_without_anybody_to_ask_says_so() -> None:
    assert plugbay("run", "--plugins", str(REPORT), "usage", status=3)[1].startswith("usage: there are no numbers: ")
    assert plugbay("run", "--plugins", str(REPORT), "usage", "--help")[0].startswith("usage: usage [-h]")


@pytest.mark.parametrize("asked", [b"week", b"\xff"])
def test_an_action_refuses_what_it_cannot_count_by(run: Run, asked: bytes) -> None:
    async def main() -> None:
        async with Host.load(PUBLISHER, grant_all=True) as host:
            by_day = await host.actions.invoke("test", "usage.totals", b"day", may_spawn=False)
            assert len(json.loads(by_day)["rows"]) == 17
            with pytest.raises(CallFailed) as caught:
                await host.actions.invoke("test", "usage.totals", asked, may_spawn=False)
            assert caught.value.failure.code == Code.PLUGIN_ERROR
            assert "by model or by day" in caught.value.failure.message

    run(main)


def test_a_file_of_calls_that_is_not_there_is_told_and_ends_nothing(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "data" / "calls.jsonl"
    file.parent.mkdir()

    async def main() -> None:
        async with Host.load(PUBLISHER, BURNDOWN, config=settings(tmp_path, file), grant_all=True) as host:
            frame = await seen(host, "nobody publishes")
            assert str(file) in text(frame).replace(" ", "")
            calls(file, ("2026-11-01", "opus", 300))
            await seen(host, "700 of 1.0 k", size=(100, 24))

    run(main)


# Another language.


@requirement("ainb:examples-any-language")
def test_a_plugin_in_javascript_draws_hears_keys_and_answers_commands(run: Run) -> None:
    async def main() -> None:
        async with Host.load(CLOCK) as host:
            frame = await host.screens.render("clock-js/clock", 40, 11)
            assert frame.redraw and "here" in text(frame)
            assert {cell.fg for cell in frame.cells.values() if cell.symbol == "█"} == {(127, 209, 160)}
            assert host.screens.press("clock-js/clock", parse_key("u"))
            assert "UTC" in text(await host.screens.render("clock-js/clock", 40, 11))
            done = await host.run_cli("clock", ["--utc"])
            assert (len(done.stdout), done.stderr, done.exit_code) == (20, b"", 0)
            done = await host.run_cli("clock", ["--local"])
            assert (done.stdout, done.stderr, done.exit_code) == (b"", b"usage: clock [--utc]\n", 2)
            pid = host.plugins()[0].pid
        assert pid is not None and not Path(f"/proc/{pid}").exists()

    run(main)
