"""The kaged examples at work: notes that survive a restart, a conversation made shorter, a price beyond its line."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import runpy
from pathlib import Path
from typing import Any

import pytest

from plugbay import Code, Host
from plugbay.cli.exit_codes import Exit
from plugbay.conformance.engine.plugin_runner import run_conformance
from plugbay.contracts.kaged.manifest import parse
from plugbay.host.config.settings import load_secrets
from plugbay.host.discovery.folders import inspect
from plugbay.host.events.bus import Stream
from plugbay.sdk.manifests import kaged_manifest
from tests.examples import EVERY_CONTRACT
from tests.support import commands
from tests.support.loops import Run
from tests.support.machine import confined_counters
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = sorted(path.parent for path in EXAMPLES.glob("*/kaged-plugin.yaml") if path.parent.name != EVERY_CONTRACT)
MEMORY, COMPACTOR, NOTIFIER = (EXAMPLES / name for name in ("session-memory", "window-compactor", "price-notifier"))

KEY = "correct horse battery staple"


def plugbay(*words: str, status: int = 0, folder: Path | None = None, given: str = "") -> str:
    """What a command prints, on both streams."""
    done = commands.plugbay(*words, cwd=folder, stdin=given.encode())
    assert done.returncode == status, done.stderr
    return (done.stdout + done.stderr).decode()


def settings(tmp_path: Path, text: str = "") -> Path:
    """A plugbay.toml with a state directory and a project beside it."""
    config = tmp_path / "plugbay.toml"
    config.write_text(f'[host]\nstate_dir = "state"\n{text}')
    return config


def shop(tmp_path: Path) -> Path:
    """The prices of a project that the operator has named, and so plugins may see."""
    (tmp_path / "shop").mkdir(exist_ok=True)
    return tmp_path / "shop" / "prices.json"


def talk(count: int) -> list[dict[str, Any]]:
    return [{"role": "user" if at % 2 == 0 else "assistant", "content": f"message {at}"} for at in range(count)]


# Every example.


def test_there_is_an_example_for_every_role() -> None:
    assert set(FOLDERS) == {MEMORY, COMPACTOR, NOTIFIER}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_an_example_has_a_readme_and_no_manifest_problem(folder: Path) -> None:
    told = json.loads(plugbay("inspect", str(folder), "--json"))
    assert (told["contract"], told["lifetime"], told["problems"]) == ("kaged", "resident", [])
    assert told["exports"] != []
    assert (folder / "README.md").exists()


@requirement("kaged:examples-code-and-manifest")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_code_and_the_manifest_say_the_same(folder: Path) -> None:
    plugin = runpy.run_path(str(folder / "plugin.py"))["plugin"]
    written, problems = parse((folder / "kaged-plugin.yaml").read_text("utf-8"), folder)
    declared, _ = parse(kaged_manifest(plugin, command=["python3", "plugin.py"]), folder)
    assert problems == []
    assert written is not None and written == declared


@exhaustive
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_an_example_conforms(folder: Path) -> None:
    spec = inspect(folder).spec
    assert spec is not None
    report = run_conformance(spec)
    assert [axis for axis in report.axes if axis.status in ("failed", "advice")] == []
    assert report.passed > 25


def test_every_tool_answers_the_example_in_its_own_schema(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with Host.load(*FOLDERS, config=settings(tmp_path), grant_all=True) as host:
            tools = {name: export for name, export in host.exports().items() if export.kind == "tool"}
            assert len(tools) == 4
            for name, export in tools.items():
                await host.call(name, export.input_schema["examples"][0])

    run(main)


# Session memory: storage and hooks.


@requirement("kaged:examples-storage-stays")
def test_what_was_remembered_is_there_after_a_restart(run: Run, tmp_path: Path) -> None:
    config = settings(tmp_path)

    async def main() -> None:
        async with Host.load(MEMORY, config=config, grant_all=True) as host:
            kept = await host.call("remember", {"text": "Ada drinks tea."})
            await host.call("remember", {"text": "Ben plays chess."})
        async with Host.load(MEMORY, config=config, grant_all=True) as host:
            found = await host.call("recall", {"query": "What does Ada drink?"})
            assert found == {"notes": [{"id": kept["id"], "text": "Ada drinks tea."}]}
            await host.reload("session-memory")
            assert await host.call("forget", {"id": kept["id"]}) == {"forgotten": True}
            assert await host.call("forget", {"id": kept["id"]}) == {"forgotten": False}
            assert await host.call("recall", {"query": "Ada"}) == {"notes": []}

    run(main)


@requirement("kaged:examples-injection")
def test_a_new_session_is_told_the_newest_notes(run: Run, tmp_path: Path) -> None:
    config = settings(tmp_path, '[plugins.session-memory]\nconfig = { told = 2, heading = "Mind:" }\n')

    async def main() -> None:
        async with Host.load(MEMORY, config=config, grant_all=True) as host:
            assert (await host.fire("on_session_start", {})).injections == ()
            for text in ("one", "two", "three"):
                await host.call("remember", {"text": text})
            outcome = await host.fire("on_session_start", {}, context={"session_id": "ses_1"})
            assert outcome.injections == (("session-memory", "Mind:\n- two\n- three"),)
            assert outcome.skipped == ()

    run(main)


def test_what_people_ask_for_in_passing_is_kept_once(run: Run, tmp_path: Path) -> None:
    said = "user: hello\nuser: Remember: the gate code is 4711\nassistant: I will remember that the gate is green."

    async def main() -> None:
        async with Host.load(MEMORY, config=settings(tmp_path), grant_all=True) as host:
            for _ in range(2):
                outcome = await host.fire("on_session_idle", {"transcript": said})
                assert (outcome.injections, outcome.skipped) == ((), ())
            found = await host.call("recall", {"query": "gate"})
            assert [note["text"] for note in found["notes"]] == ["the gate is green.", "the gate code is 4711"]

    run(main)


def test_what_is_compacted_away_is_rescued_and_told(run: Run, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": 'Remember: say "hi" to Ada\nnow'}, *talk(30)]

    async def main() -> None:
        async with Host.load(MEMORY, config=settings(tmp_path), grant_all=True) as host:
            outcome = await host.compact(messages)
            assert (len(outcome.messages), outcome.failures) == (20, ())
            assert outcome.injections == (("session-memory", "What you remember:\n- say"),)
            assert (await host.compact(messages)).injections == ()

    run(main)


@requirement("kaged:examples-knob-reload")
def test_a_knob_that_is_turned_counts_from_the_reload_on(run: Run, tmp_path: Path) -> None:
    config = settings(tmp_path, "[plugins.session-memory]\nconfig = { told = 3 }\n")

    async def main() -> None:
        async with Host.load(MEMORY, config=config, grant_all=True) as host:
            for text in ("one", "two"):
                await host.call("remember", {"text": text})
            plugbay("config", "set", str(MEMORY), "told", "1", folder=tmp_path)
            assert (await host.fire("on_session_start", {})).injections[0][1].endswith("- one\n- two")
            await host.reload("session-memory")
            assert (await host.fire("on_session_start", {})).injections[0][1].endswith(":\n- two")

    run(main)


@pytest.mark.parametrize(
    ("knob", "value", "status", "words"),
    [
        ("told", "21", Exit.USAGE, "must be at most 20"),
        ("told", "many", Exit.USAGE, "whole number"),
        ("listen", "perhaps", Exit.USAGE, "true or false"),
        ("match", "some", Exit.USAGE, "any, all"),
        ("heading", "x" * 81, Exit.USAGE, "at most 80"),
        ("heading", "", Exit.USAGE, "cannot be ''"),
        ("tolld", "1", Exit.NOT_FOUND, "did you mean 'told'"),
    ],
)
def test_a_knob_takes_nothing_beyond_its_bounds(tmp_path: Path, knob: str, value: str, status: int, words: str) -> None:
    settings(tmp_path)
    assert words in plugbay("config", "set", str(MEMORY), knob, value, status=status, folder=tmp_path)
    assert not (tmp_path / "state" / "config").exists()


def test_any_word_or_all_of_them_must_match(run: Run, tmp_path: Path) -> None:
    config = settings(tmp_path)

    async def main() -> None:
        async with Host.load(MEMORY, config=config, grant_all=True) as host:
            await host.call("remember", {"text": "Ada drinks tea."})
            assert len((await host.call("recall", {"query": "drinks coffee"}))["notes"]) == 1
            plugbay("config", "set", str(MEMORY), "match", "all", folder=tmp_path)
            await host.reload("session-memory")
            assert (await host.call("recall", {"query": "drinks coffee"}))["notes"] == []
            assert len((await host.call("recall", {"query": "drinks tea"}))["notes"]) == 1

    run(main)


@pytest.mark.parametrize(
    ("state", "grants", "words"),
    [
        (True, ["kaged:storage:read"], "kaged:storage:write, which is not granted"),
        (False, ["kaged:storage:read", "kaged:storage:write"], "storage"),
    ],
)
def test_without_storage_a_tool_says_so_and_a_hook_is_passed_over(
    run: Run, tmp_path: Path, state: bool, grants: list[str], words: str
) -> None:
    config = tmp_path / "plugbay.toml"
    config.write_text('[host]\nstate_dir = "state"\n' if state else "")

    async def main() -> None:
        async with Host.load(MEMORY, config=config, grants=grants) as host:
            failure = (await host.attempt("remember", {"text": "x"})).failure
            assert failure is not None and failure.origin == "plugin"
            assert words in failure.message
            outcome = await host.fire("on_session_start", {})
            assert outcome.injections == ()
            assert [plugin for plugin, _ in outcome.skipped] == ([] if state else ["session-memory"])

    run(main)


# Window compactor.


@requirement("kaged:examples-compaction")
def test_the_middle_of_a_conversation_becomes_one_line(run: Run, tmp_path: Path) -> None:
    config = settings(tmp_path, "[plugins.window-compactor]\nconfig = { keep = 3, quotes = 2 }\n")
    messages = [{"role": "system", "content": "Be brief."}, *talk(24)]

    async def main() -> None:
        async with Host.load(COMPACTOR, config=config) as host:
            outcome = await host.compact(messages, trigger="token_limit")
            line = "[20 earlier messages left out (10 assistant, 10 user): “message 2”, “message 4”]"
            note = {"role": "system", "content": line}
            assert list(outcome.messages) == [*messages[:2], note, *messages[-3:]]
            assert list(outcome.removed) == messages[2:-3]
            assert (outcome.compacted_by, outcome.built_in_because) == ("window-compactor", None)

    run(main)


@requirement("kaged:examples-compaction-declined")
def test_a_short_conversation_is_left_to_the_host(run: Run, tmp_path: Path) -> None:
    config = settings(tmp_path, '[agents.primary]\nplugins = ["window-compactor"]\nkeep = 4\nstrategy = "summarize"\n')

    async def main() -> None:
        async with Host.load(COMPACTOR, config=config) as host:
            outcome = await host.compact(talk(10))
            assert (outcome.compacted_by, outcome.built_in_because) == (None, "it left the decision to the host")
            note = {"role": "system", "content": "[6 earlier messages were removed from this conversation]"}
            assert list(outcome.messages) == [note, *talk(10)[-4:]]

    run(main)


def test_the_window_never_begins_with_the_result_of_a_call_that_is_gone(run: Run, tmp_path: Path) -> None:
    config = settings(tmp_path, "[plugins.window-compactor]\nconfig = { keep = 2, threshold = 4 }\n")
    messages = [*talk(6), {"role": "tool", "content": "42"}, {"role": "assistant", "content": "It is 42."}]

    async def main() -> None:
        async with Host.load(COMPACTOR, config=config) as host:
            outcome = await host.compact(messages)
            assert [message["role"] for message in outcome.messages] == ["user", "system", "assistant"]
            assert {"role": "tool", "content": "42"} in outcome.removed

    run(main)


# Price notifier: notifications and secrets.


@requirement("kaged:examples-notification")
def test_a_price_that_crosses_a_line_is_told_by_itself(run: Run, tmp_path: Path) -> None:
    config = settings(tmp_path, '[project]\nroot = "shop"\n[plugins.price-notifier]\nconfig = { seconds = 0.05 }\n')
    prices = shop(tmp_path)

    async def main() -> None:
        prices.write_text('{"tea": 4.2, "coffee": 3}')
        async with Host.load(NOTIFIER, config=config, grant_all=True) as host:
            await host.call("prices.refresh")
            drawn = await host.call("watch", {"item": "tea", "above": 5, "below": 4})
            assert drawn == {"item": "tea", "above": 5, "below": 4, "price": 4.2}
            async with host.subscribe("plugin.price-notifier.>") as events:
                await told_of(events, prices, {"item": "tea", "price": 4.9, "before": 4.2})
                await told_of(events, prices, {"item": "tea", "price": 5.5, "before": 4.9}, above=5)
                await told_of(events, prices, {"item": "tea", "price": 6, "before": 5.5})
                await told_of(events, prices, {"item": "tea", "price": 3.5, "before": 6}, below=4)
                assert host.plugins()[0].counters == confined_counters()

    run(main)


async def told_of(events: Stream, prices: Path, change: dict[str, Any], **line: float) -> None:
    """The new price is told, and the line it crosses, and nothing else."""
    write(prices, {change["item"]: change["price"], "coffee": 3})
    told = [change] if not line else [change, {**change, **line}]
    for name, payload in zip(("changed", "crossed"), told, strict=False):
        event = await anext(events)
        assert (event.topic, event.payload) == (f"plugin.price-notifier.{name}", payload)


def write(path: Path, value: Any) -> None:
    """At once: a reader sees the old file or the new one."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(value))
    os.replace(new, path)


def test_the_file_is_a_knob_and_stays_inside_the_project(run: Run, tmp_path: Path) -> None:
    config = settings(tmp_path, '[project]\nroot = "work"\n')
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "list.json").write_text('{"tea": 1, "note": "x", "open": true}')
    (tmp_path / "prices.json").write_text('{"secret": 1}')

    async def main() -> None:
        async with Host.load(NOTIFIER, config=config, grant_all=True) as host:
            assert (await host.call("prices.refresh"))["prices"] == {}
            plugbay("config", "set", str(NOTIFIER), "file", "project:list.json", folder=tmp_path)
            await host.reload("price-notifier")
            assert (await host.call("prices.refresh"))["prices"] == {"tea": 1}
            plugbay("config", "set", str(NOTIFIER), "file", "project:../prices.json", folder=tmp_path)
            await host.reload("price-notifier")
            failure = (await host.attempt("prices.refresh")).failure
            assert failure is not None and failure.code == Code.INVALID_INPUT
            assert "outside the project" in failure.message

    run(main)


@requirement("kaged:examples-secret-unsaid")
def test_a_secret_signs_notifications_and_is_said_nowhere(run: Run, tmp_path: Path) -> None:
    config = settings(tmp_path, '[project]\nroot = "shop"\n[plugins.price-notifier]\nconfig = { seconds = 0.05 }\n')
    prices = shop(tmp_path)
    said = [
        plugbay("config", "secret", str(NOTIFIER), "signing_key", folder=tmp_path, given=f"{KEY}\n"),
        plugbay("config", "show", str(NOTIFIER), folder=tmp_path),
        plugbay("config", "show", str(NOTIFIER), "--json", folder=tmp_path),
    ]
    assert load_secrets(tmp_path / "state", "price-notifier") == {"signing_key": KEY}

    async def main() -> None:
        logs = tmp_path / "logs"
        prices.write_text('{"tea": 1}')
        async with Host.load(NOTIFIER, config=config, grant_all=True, log_dir=logs) as host:
            refreshed = await host.call("prices.refresh")
            assert refreshed["signed"] is True
            async with host.subscribe("plugin.>") as events:
                write(prices, {"tea": 2})
                event = await anext(events)
            payload = {"item": "tea", "price": 2, "before": 1}
            body = json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()
            signature = hmac.new(KEY.encode(), body, hashlib.sha256).hexdigest()
            assert event.payload == {**payload, "signature": signature}
            failure = (await host.attempt("watch", {"item": "tea"})).failure
            said.extend([repr(refreshed), repr(event), repr(failure), repr(host.plugins())])
        said.extend(path.read_text() for path in logs.glob("*"))
        assert [text for text in said if KEY in text] == []

    run(main)


def test_a_key_that_is_too_short_is_refused_without_being_repeated(tmp_path: Path) -> None:
    settings(tmp_path)
    words = ("config", "secret", str(NOTIFIER), "signing_key")
    said = plugbay(*words, status=Exit.USAGE, folder=tmp_path, given="hunter2")
    assert "minLength: 8" in said and "hunter2" not in said
    assert not (tmp_path / "state" / "secrets").exists()
