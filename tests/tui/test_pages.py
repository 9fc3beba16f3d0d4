"""Text pages: all facts, in columns, never as markup."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from plugbay.host.discovery.folders import discover
from plugbay.host.status import PluginStatus
from plugbay.model.errors import Code, Failure
from plugbay.model.spec import Export, Lifetime, PluginSpec
from plugbay.tui import pages
from tests.support.ainb import write_ainb_plugin
from tests.support.requirements import requirement
from tests.tui.conftest import plain


def status(
    state: str = "running", *, granted: tuple[str, ...] = (), pid: int | None = 42, **spec: object
) -> PluginStatus:
    facts = {"id": "p", "version": "1.2.0", "contract": "ainb", "root": Path("/plugins/p"), "command": ("./p",), **spec}
    counters = {"noise": 12_000}
    return PluginStatus(PluginSpec(**facts), state, granted, 0, 1, pid, 3, counters)  # type: ignore[arg-type]


def test_a_page_about_a_plugin_has_all_its_facts() -> None:
    exports = (Export("tool", "greet", "Says [bold]hello[/]."), Export("cli_namespace", "notes"))
    about = status(
        description="A [red]test[/].",
        exports=exports,
        capabilities=("event_bus", "network=a.example"),
        granted=("event_bus",),
    )
    text = plain(pages.about_page(about))
    assert "A [red]test[/]." in text
    assert "● running" in text
    assert "ainb, version 1.2.0" in text
    assert "pid 42, start 3" in text
    assert "/plugins/p" in text
    assert "tool           greet  Says [bold]hello[/]." in text
    assert "✓ granted  event_bus" in text
    assert "✗ refused  network=a.example" in text
    assert "noise  12,000" in text


def test_a_plugin_with_nothing_to_tell_says_so() -> None:
    text = plain(pages.about_page(status("idle", pid=None)))
    assert "none" in text
    assert "no capabilities requested" in text
    assert "process      none" in text


def test_a_plugin_with_a_process_for_each_call_says_so() -> None:
    assert "one for each call" in plain(pages.about_page(status("idle", pid=None, lifetime=Lifetime.PER_CALL)))


def test_what_a_plugin_says_cannot_move_the_cursor() -> None:
    text = plain(pages.about_page(status(description="\x1b[2J\nforged line")))
    assert "\x1b" not in text
    assert "\\x1b[2J\\x0aforged line" in text


def test_every_problem_of_a_manifest_is_on_its_page(tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "wrong", version=7, abi_version="two")
    (found,) = discover([tmp_path])
    text = plain(pages.manifest_problems(found))
    assert "plugin.version" in text
    assert "plugin.abi_version" in text
    assert "line 3" in text


@pytest.mark.parametrize(
    ("code", "headline"),
    [
        (Code.CRASHED, "The plugin crashed"),
        (Code.QUARANTINED, "quarantined"),
        (Code.LAUNCH_FAILED, "could not be started"),
        (Code.CAPABILITY_NOT_ALLOWED, "not granted"),
        (Code.PLUGIN_ERROR, "returned no frame"),
    ],
)
def test_trouble_has_a_headline_for_people(code: str, headline: str) -> None:
    assert headline in plain(pages.failure_page(status("backoff"), Failure(code, "why"), 40)).splitlines()[0]


def test_the_failure_page_shows_the_failure_and_a_hint() -> None:
    detail = {"stderr_tail": [f"line {number}" for number in range(50)], "hint": "look [here]"}
    text = plain(pages.failure_page(status("backoff"), Failure(Code.CRASHED, "status 3", detail=detail), 40))
    assert "◌ backoff" in text
    assert "crashed: status 3" in text
    assert "look [here]" in text
    assert "r reloads it" in text
    assert "line 49" in text
    assert text.count("\n  line ") == pages.STDERR_LINES


def test_trouble_in_a_small_window_keeps_the_last_words() -> None:
    detail = {"stderr_tail": ["first", "last"]}
    text = plain(pages.failure_page(status(), Failure(Code.CRASHED, "status 3", detail=detail), 5))
    assert "last" in text
    assert "first" not in text


@requirement("host:pending")
def test_the_page_of_a_pending_plugin_names_the_missing_grants() -> None:
    waiting = replace(status("pending", pid=None, capabilities=("event_bus",)), missing=("event_bus",))
    text = plain(pages.about_page(waiting))
    assert "◇ pending" in text and "◇ missing  event_bus" in text
