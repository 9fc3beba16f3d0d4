"""Record a real plugin, put the recording in its place, then in the place of its host: for every contract.

The same calls give the same results from the recording; the same plugin is as it was recorded; a plugin that was
changed is not, and the report says where.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from plugbay import CallFailed, Code, Host
from tests.support.commands import plugbay
from tests.support.loops import Run, run_on
from tests.support.patience import PATIENCE
from tests.support.tiers import first_alone

EXAMPLES = Path(__file__).parents[2] / "examples"

CONFIG = """\
[host]
state_dir = "state"

[memory]
path = ":memory:"

[plugins."{plugin_id}"]
timeouts = {{ launch = 10, handshake = 20, teardown = 10 }}
"""
"""The times are for a machine that has much else to do."""

STAND_IN = "import os\nos.execv({python!r}, [{python!r}, '-m', 'plugbay', 'replay', {file!r}])\n"

DIFF = "--- a/tea.txt\n+++ b/tea.txt\n@@ -1 +1,2 @@\n-milk\n+lemon\n+sugar\n"


class Case(NamedTuple):
    """A plugin, how it is used, and a change that makes it another one."""

    plugin_id: str
    example: str
    program: str
    use: Callable[[Host], Awaitable[Any]]
    was: str
    becomes: str


async def greet(host: Host) -> Any:
    refused = await host.attempt("divide", {"dividend": 1, "divisor": 0})
    assert refused.failure is not None
    return [await host.call("greet", {"name": "Ada"}), refused.failure.code, refused.failure.message]


async def slugs(host: Host) -> Any:
    words = await host.call("text_tools_count", {"text": "one two three"})
    return [await host.call("text_tools_slug", {"text": "Crème brûlée"}), words]


async def ask(host: Host) -> Any:
    """The plugin asks its host for a model, and is told that there is none."""
    given = {"question": "What does Ada drink?", "provider": "nobody", "model": "quote"}
    result = await host.attempt("memory_notes_ask", given)
    assert result.failure is not None
    return (result.failure.code, result.failure.message)


async def recall(host: Host) -> Any:
    """The plugin asks its host for what it keeps."""
    return [await host.call("recall", {"query": "tea"}), await host.call("forget", {"id": "0a"})]


async def command_line(host: Host) -> Any:
    lines = [await host.run_cli("usage", words) for words in (["--help"], ["--by", "week"])]
    return [(done.stdout, done.stderr, done.exit_code) for done in lines]


async def count(host: Host) -> Any:
    result = await host.call("diff_stat", {"diff": DIFF})
    return [result, await host.call("diff_stat", {"diff": "no diff"})]


CASES = {
    "rune": Case("example.greeter", "greeter", "plugin.py", greet, "Hello, ", "Good day, "),
    "nexo": Case("text_tools", "text-tools-js", "plugin.mjs", slugs, 'join("-")', 'join("_")'),
    "nexo that asks": Case(
        "memory_notes", "memory-notes", "plugin.py", ask, "Answer from these notes:", "Make something up:"
    ),
    "kaged": Case("session-memory", "session-memory", "plugin.py", recall, '{"forgotten": ', '{"forgot": '),
    "ainb": Case("usage-report", "usage-report", "plugin.py", command_line, "this month", "this year"),
    "vai": Case("example/devkit", "devkit", "devkit.py", count, "lines added", "lines more"),
}

each_contract = pytest.mark.parametrize("case", first_alone(CASES.values()), ids=CASES)


def load(case: Case, folder: Path, tmp_path: Path, **options: Any) -> Host:
    config = tmp_path / "plugbay.toml"
    config.write_text(CONFIG.format(plugin_id=case.plugin_id))
    return Host.load(folder, config=config, grant_all=True, unconfined=True, **options)


def copy(case: Case, tmp_path: Path) -> Path:
    return shutil.copytree(EXAMPLES / case.example, tmp_path / "copy" / case.example)


def record(case: Case, tmp_path: Path, run: Run) -> tuple[Any, Path]:
    """What the plugin's callers got, and the recording."""
    results: list[Any] = []

    async def main() -> None:
        async with load(case, EXAMPLES / case.example, tmp_path, record=tmp_path / "recordings") as host:
            results.append(await case.use(host))

    run(main)
    (file,) = (tmp_path / "recordings").iterdir()
    return results[0], file


def play(file: Path, folder: Path, *words: str) -> tuple[int, str, str]:
    """The status, and what was said on either stream."""
    done = plugbay("replay", file, "--as-host", folder, *words)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def stand_in(case: Case, file: Path, tmp_path: Path) -> Path:
    """The plugin's folder with the recording in the place of its program."""
    folder = copy(case, tmp_path)
    if case.program.endswith(".py"):
        (folder / case.program).write_text(STAND_IN.format(python=sys.executable, file=str(file)))
    else:
        manifest = folder / "nexo-plugin.toml"
        words = f'command = "{sys.executable}"\nargs = ["-m", "plugbay", "replay", "{file}"]'
        manifest.write_text(manifest.read_text("utf-8").replace('command = "node"\nargs = ["plugin.mjs"]', words))
        (folder / case.program).unlink()
    return folder


@each_contract
def test_a_recording_answers_in_the_place_of_the_plugin(case: Case, tmp_path: Path, run: Run) -> None:
    expected, file = record(case, tmp_path, run)
    folder = stand_in(case, file, tmp_path)

    async def main() -> None:
        async with load(case, folder, tmp_path) as host:
            assert await case.use(host) == expected

    run(main)


@each_contract
def test_a_plugin_that_was_not_changed_is_as_it_was_recorded(case: Case, tmp_path: Path) -> None:
    _, file = record(case, tmp_path, run_on("asyncio"))
    status, said, complained = play(file, EXAMPLES / case.example)
    assert (status, complained) == (0, ""), said
    assert "matches the recording" in said


@each_contract
def test_a_plugin_that_was_changed_is_found_out(case: Case, tmp_path: Path) -> None:
    _, file = record(case, tmp_path, run_on("asyncio"))
    folder = copy(case, tmp_path)
    program = folder / case.program
    source = program.read_text("utf-8")
    assert case.was in source
    program.write_text(source.replace(case.was, case.becomes))
    status, said, complained = play(file, folder)
    assert status == 9, said + complained
    assert "is different" in said and "      - " in said and "      + " in said


def test_what_was_not_recorded_gets_the_contracts_own_error(tmp_path: Path, run: Run) -> None:
    case = CASES["kaged"]
    _, file = record(case, tmp_path, run)
    folder = stand_in(case, file, tmp_path)

    async def main() -> None:
        async with load(case, folder, tmp_path) as host:
            with pytest.raises(CallFailed) as caught:
                await host.call("recall", {"query": "coffee"})
            failure = caught.value.failure
            assert failure.code == Code.PLUGIN_ERROR
            assert 'the nearest is in line 6: /params/query: "coffee", not "tea"' in failure.message

    run(main)


def test_a_recording_that_was_torn_by_the_death_of_its_host_plays_as_far_as_it_goes(tmp_path: Path, run: Run) -> None:
    case = CASES["kaged"]
    _, file = record(case, tmp_path, run)
    data = file.read_bytes()
    end = data.index(b"\n", data.index(b'"forgotten"')) + 1
    file.write_bytes(data[: end + 20])
    status, said, complained = play(file, EXAMPLES / case.example)
    assert status == 0, said + complained


def test_plugins_that_talk_through_their_host_do_so_from_recordings(tmp_path: Path, run: Run) -> None:
    """One asks for a model that another has, and gets the answer in pieces."""
    question = {"question": "What does Ada drink?", "provider": "toy", "model": "quote", "stream": True}
    config = tmp_path / "plugbay.toml"
    times = "timeouts = { launch = 10, handshake = 20 }\n"
    config.write_text(f'[memory]\npath = ":memory:"\n[plugins.memory_notes]\n{times}[plugins.toy_model]\n{times}')
    answers: list[Any] = []

    async def ask_them(*folders: Path, **options: Any) -> None:
        async with Host.load(*folders, config=config, grant_all=True, unconfined=True, **options) as host:
            assert host.memory is not None
            await host.memory.remember("demo", "Ada drinks tea.")
            answers.append(await host.call("memory_notes_ask", question, timeout=PATIENCE))

    real = [EXAMPLES / name for name in ("memory-notes", "toy-model")]
    run(lambda: ask_them(*real, record=tmp_path / "rec"))
    mocks = [shutil.copytree(folder, tmp_path / "mocks" / folder.name) for folder in real]
    for mock, name in zip(mocks, ("memory_notes", "toy_model"), strict=True):
        file = str(tmp_path / "rec" / f"{name}.jsonl")
        (mock / "plugin.py").write_text(STAND_IN.format(python=sys.executable, file=file))
    run(lambda: ask_them(*mocks))
    assert answers[0] == answers[1] and answers[0]["answer"] == "Ada drinks tea."
