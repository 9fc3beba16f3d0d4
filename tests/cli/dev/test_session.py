"""One plugin across saves: which host serves it, which calls are repeated, which events are shown."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from plugbay import Host
from plugbay.cli.dev import events
from plugbay.cli.dev.session import Session
from plugbay.cli.exit_codes import Refusal
from plugbay.cli.manifest import generated
from plugbay.cli.manifest.command import generate
from plugbay.cli.options import ExportCall
from plugbay.host.admin.dev import under_development
from plugbay.host.discovery.folders import Found
from plugbay.model.errors import Failure
from plugbay.model.spec import Export
from tests.support.nexo import write_nexo_plugin

Main = Callable[[], Coroutine[Any, Any, None]]

ECHO = ExportCall("bot_echo", {"n": 1})


class Notebook:
    """A view that remembers."""

    def __init__(self) -> None:
        self.seen: list[events.Event] = []

    def show(self, event: events.Event) -> None:
        self.seen.append(event)

    def list_exports(self, exports: Sequence[Export]) -> None: ...

    def list_commands(self) -> None: ...

    def all(self, kind: type[events.Event]) -> list[Any]:
        return [event for event in self.seen if isinstance(event, kind)]


class Fixture:
    def __init__(self, folder: Path, **options: bool) -> None:
        self.folder = folder
        self.view = Notebook()
        self.hosts: list[Host] = []
        self.refusal: Refusal | None = None
        self.session = Session(folder, None, self.make_host, self.view, **options)

    def make_host(self, found: Found) -> Host:
        if self.refusal is not None:
            raise self.refusal
        assert found.spec is not None
        self.hosts.append(Host([replace(found, spec=under_development(found.spec))]))
        return self.hosts[-1]

    async def call(self, *calls: ExportCall) -> None:
        await asyncio.wait({self.session.call(calls)})


@pytest.fixture
def here(tmp_path: Path) -> Fixture:
    return Fixture(write_nexo_plugin(tmp_path, "bot", tools=["echo"]))


def manifest(folder: Path) -> Path:
    return folder / "nexo-plugin.toml"


def test_a_save_of_the_source_reloads_and_one_of_the_manifest_makes_a_new_host(
    here: Fixture, on_loop: Callable[[Main], None]
) -> None:
    async def main() -> None:
        session = here.session
        assert await session.reload() and await session.reload()
        await here.call(ECHO)
        assert len(here.hosts) == 1
        text = manifest(here.folder).read_text()
        manifest(here.folder).write_text(text.replace('name = "P"', 'name = "Q"'))
        assert await session.reload()
        assert len(here.hosts) == 2 and here.hosts[0].plugins()[0].state == "stopped"
        assert await session.reload(new_host=True)
        assert len(here.hosts) == 3
        await here.call(ECHO)
        await session.close()
        assert here.hosts[2].plugins()[0].state == "stopped"
        assert [event.record.failure for event in here.view.all(events.CallFinished)] == [None, None]
        assert len(here.view.all(events.Watching)) == 2

    on_loop(main)


def test_a_broken_manifest_leaves_all_as_it_was(here: Fixture, on_loop: Callable[[Main], None]) -> None:
    async def main() -> None:
        session = here.session
        await session.reload()
        text = manifest(here.folder).read_text()
        manifest(here.folder).write_text(text.replace('version = "0.1.0"', "version = 1"))
        assert not await session.reload()
        assert session.status == 3
        assert [problem.path for problem in here.view.all(events.Validated)[0].found.errors] == ["plugin.version"]
        await here.call(ECHO)
        assert here.view.all(events.CallFinished)[0].record.failure is None
        manifest(here.folder).write_text(text)
        assert await session.reload() and session.status == 0
        await session.close()

    on_loop(main)


SOURCE = """from plugbay.sdk import Plugin
plugin = Plugin("weather")

@plugin.tool()
def look() -> str:
    return "blue"

plugin.run()
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A source with a generated manifest of rune."""
    source = tmp_path / "weather" / "plugin.py"
    source.parent.mkdir()
    source.write_text(SOURCE)
    generate(generated.read_declarations(source), source.parent, ["rune"], write=True)
    return source


def test_a_generated_manifest_follows_its_source(source: Path, on_loop: Callable[[Main], None]) -> None:
    here, name = Fixture(source.parent), "rterm-plugin.json"

    async def main() -> None:
        await here.session.reload()
        before = (source.parent / name).read_text()
        source.write_text(SOURCE.replace("look", "gaze"))
        await here.session.reload()
        await here.session.reload()
        assert [event.paths for event in here.view.all(events.Generated)] == [[name]]
        assert here.session.was_generated(name) and not here.session.was_generated("plugin.py")
        assert here.view.all(events.Validated) == []
        await here.call(ExportCall("gaze", {}))
        assert here.view.all(events.CallFinished)[0].record.failure is None
        (source.parent / name).write_text(before)
        assert not here.session.was_generated(name), "the author has changed it"
        await here.session.close()

    on_loop(main)


def test_a_manifest_that_was_written_by_hand_stays(source: Path, on_loop: Callable[[Main], None]) -> None:
    here, file = Fixture(source.parent), source.parent / "rterm-plugin.json"
    file.write_text(generated.strip_mark(file.read_text()))
    before = file.read_bytes()

    async def main() -> None:
        source.write_text(SOURCE.replace("look", "gaze"))
        await here.session.reload()
        assert file.read_bytes() == before and here.view.all(events.Generated) == []
        await here.session.close()

    on_loop(main)


@pytest.mark.parametrize("broken", ["def (:", "raise SystemExit(3)"], ids=["no Python", "cannot be loaded"])
def test_a_source_that_cannot_be_used_leaves_its_manifest(
    source: Path, broken: str, on_loop: Callable[[Main], None]
) -> None:
    here, file = Fixture(source.parent), source.parent / "rterm-plugin.json"
    before = file.read_bytes()

    async def main() -> None:
        source.write_text(broken)
        await here.session.reload()
        assert file.read_bytes() == before and here.view.all(events.Generated) == []
        assert len(here.view.all(events.Validated)) == 1
        await here.session.close()

    on_loop(main)


def test_a_source_that_its_manifest_no_longer_speaks_for_is_reported_once(
    source: Path, on_loop: Callable[[Main], None]
) -> None:
    here = Fixture(source.parent, updates_manifests=False)

    async def main() -> None:
        await here.session.reload()
        assert here.view.all(events.Validated) == []
        source.write_text(SOURCE.replace("look", "gaze"))
        await here.session.reload()
        await here.session.reload()
        (told,) = here.view.all(events.Validated)
        assert [problem.code for problem in told.found.problems] == ["manifest_drift"]
        await here.session.close()

    on_loop(main)


def test_settings_that_cannot_be_used_are_reported_and_the_old_host_stays(
    here: Fixture, on_loop: Callable[[Main], None]
) -> None:
    async def main() -> None:
        await here.session.reload()
        here.refusal = Refusal(Failure("unavailable", "plugbay.toml is broken"), status=3)
        assert not await here.session.reload(new_host=True)
        assert here.view.all(events.Failed)[0].failure.message == "plugbay.toml is broken"
        await here.call(ECHO)
        assert here.view.all(events.CallFinished)[0].record.failure is None
        await here.session.close()

    on_loop(main)


def test_a_second_answer_is_compared_with_the_first_of_the_same_call(
    here: Fixture, on_loop: Callable[[Main], None]
) -> None:
    async def main() -> None:
        await here.session.reload()
        await here.call(ECHO, ExportCall("bot_echo", {"n": 2}), ECHO)
        await here.session.close()
        assert [event.differences for event in here.view.all(events.CallFinished)] == [None, None, []]
        assert [event.again for event in here.view.all(events.CallStarted)] == [False, False, True]

    on_loop(main)


def test_what_failed_first_is_the_status_until_the_next_save(here: Fixture, on_loop: Callable[[Main], None]) -> None:
    async def main() -> None:
        await here.session.reload()
        await here.call(ExportCall("nothing", {}), ECHO)
        assert here.session.status == 4
        await here.session.reload()
        assert here.session.status == 0
        await here.session.close()

    on_loop(main)


def test_before_there_is_a_usable_manifest_a_call_says_so(here: Fixture, on_loop: Callable[[Main], None]) -> None:
    async def main() -> None:
        await here.call(ECHO)
        assert here.view.all(events.Remark)[0].text == "correct the manifest before you call an export"
        assert here.session.exports == []
        await here.session.close()

    on_loop(main)


def test_a_file_counts_as_written_by_a_call_when_it_was_written_during_it(
    here: Fixture, on_loop: Callable[[Main], None]
) -> None:
    async def main() -> None:
        await here.session.reload()
        before = here.folder / "before.txt"
        before.write_text("x")
        os.utime(before, (1, 1))
        await here.call(ECHO)
        (here.folder / "now.txt").write_text("x")
        assert here.session.written_during_calls("now.txt")
        assert not here.session.written_during_calls("before.txt")
        assert not here.session.written_during_calls("absent.txt")
        await here.session.close()

    on_loop(main)


def test_progress_and_the_log_are_reported_before_the_answer(tmp_path: Path, on_loop: Callable[[Main], None]) -> None:
    body = "def tool_invoke(m):\n    print('aside', file=sys.stderr, flush=True)\n    print('oops', flush=True)\n"
    here = Fixture(write_nexo_plugin(tmp_path, "bot", body + "    reply(m, {})\n", tools=["echo"]))

    async def main() -> None:
        await here.session.reload()
        await here.call(ECHO)
        await here.session.close()
        kinds = [type(event).__name__ for event in here.view.seen]
        assert kinds[:2] == ["Watching", "CallStarted"]
        assert {"StderrWritten", "LogNoted"} <= set(kinds)
        assert here.view.all(events.StderrWritten)[0].text == "aside"
        assert here.view.all(events.LogNoted)[0].about == "noise"

    on_loop(main)
