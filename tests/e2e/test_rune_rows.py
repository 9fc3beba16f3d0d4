"""Every row of the rune contract's table of situations, and every capability rule, against the real host.

The plugins and what must come of each are the kit's catalogue; the host is plugbay's, the processes are real.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plugbay import Host
from plugbay.conformance.bad_plugins.host_runner import Entry, Observed, load_catalog, observe, prepare, verdict
from tests.e2e.conftest import PlugbayPort, sampled
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement

SAID = {"said": "hello"}
ROWS = [entry for entry in load_catalog("rune") if entry.row.startswith(("5.", "6."))]
BY_NAME = {entry.name: entry for entry in ROWS}


def row_id(entry: Entry) -> str:
    section, _, number = entry.row.partition(".")
    return f"row_{int(section):02}_{int(number):02}_{entry.name}"


def run(entry: Entry, port: PlugbayPort, tmp: Path) -> Observed:
    return asyncio.run(asyncio.wait_for(observe(port, entry, prepare(entry, tmp)), PATIENCE))


@requirement("rune:codes:nine", "rune:timeout:hard", "rune:crash:exit", "rune:exit:zero")
@requirement("rune:handshake:first", "rune:tool:exposed", "rune:frame:object", "rune:frame:limit")
@requirement("rune:capability:declared", "rune:capability:subset", "rune:capability:form")
@pytest.mark.parametrize("entry", sampled(ROWS), ids=row_id)
def test_row(entry: Entry, port: PlugbayPort, tmp_path: Path) -> None:
    observed = run(entry, port, tmp_path)
    assert verdict(entry.expect, observed) == ""
    assert port.next_output == SAID
    if entry.expect.outcome == "refused" or entry.situation == "input_not_json":
        assert "process.spawn" not in port.steps, "what cannot be asked starts nothing"
    elif port.failure is not None:
        assert port.failure.plugin == entry.plugin_id
        assert observed.output is None


@pytest.mark.parametrize("name", ["error_then_hang", "grandchild_holds_stdout", "stdout_closed_before_response"])
def test_an_answer_is_not_held_up_by_a_process_that_stays(name: str, port: PlugbayPort, tmp_path: Path) -> None:
    port.timeouts = {"teardown": 10 * PATIENCE}
    run(BY_NAME[name], port, tmp_path)  # with a wait for the teardown it would not end in time


def test_a_plugin_that_leaves_before_the_request_has_crashed_whoever_is_faster(tmp_path: Path) -> None:
    entry = BY_NAME["exit_before_request"]

    async def codes(times: int) -> set[str]:
        async with Host.load(prepare(entry, tmp_path)) as host:
            failures = [(await host.attempt(entry.tool)).failure for _ in range(times)]
        return {failure.code if failure else "succeeded" for failure in failures}

    assert asyncio.run(codes(60)) == {"crashed"}


def test_the_plugins_own_error_code_survives(port: PlugbayPort, tmp_path: Path) -> None:
    run(BY_NAME["error_then_exit_3"], port, tmp_path)
    assert port.failure is not None
    assert port.failure.origin == "plugin"
    assert port.failure.detail["plugin_code"] == "out_of_order"
    assert port.failure.message == "not today"


def test_a_crash_carries_the_exit_status_and_the_last_words(port: PlugbayPort, tmp_path: Path) -> None:
    run(BY_NAME["exit_3_before_handshake"], port, tmp_path)
    assert port.failure is not None
    assert port.failure.detail["exit_code"] == 3
    assert port.failure.detail["stderr_tail"] == ["cannot go on"]


def test_a_malformed_line_is_shown(port: PlugbayPort, tmp_path: Path) -> None:
    run(BY_NAME["log_line_first"], port, tmp_path)
    assert port.failure is not None
    assert port.failure.detail["line"] == "starting up, please wait"
