"""Lines for the host's log, or for stderr."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plugbay.model.operations import WriteLog
from plugbay.sdk.services.host_client import Unconnected
from plugbay.sdk.services.logs import Log
from tests.sdk.test_context import Recorder
from tests.support.requirements import requirement

LINES: list[tuple[Callable[[Log], Any], WriteLog, str]] = [
    (lambda log: log("one", 2), WriteLog("info", "one 2"), "one 2\n"),
    (lambda log: log.trace("x"), WriteLog("trace", "x"), "trace: x\n"),
    (lambda log: log.debug("x"), WriteLog("debug", "x"), "debug: x\n"),
    (lambda log: log.info("x", at=1), WriteLog("info", "x", {"at": 1}), "x at=1\n"),
    (lambda log: log.warn("x", path="/p"), WriteLog("warn", "x", {"path": "/p"}), "warn: x path='/p'\n"),
    (lambda log: log.warning("x"), WriteLog("warn", "x"), "warn: x\n"),
    (lambda log: log.error("x"), WriteLog("error", "x"), "error: x\n"),
]


@requirement("ainb:sdk-log")
@pytest.mark.parametrize(("write", "op", "text"), LINES)
def test_a_line_goes_to_the_host_where_it_has_a_log(
    write: Callable[[Log], Any], op: WriteLog, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = Recorder()
    write(Log(line))
    assert (line.said, capsys.readouterr().err) == ([op], "")


@pytest.mark.parametrize(("write", "op", "text"), LINES)
def test_a_line_goes_to_stderr_where_it_has_none(
    write: Callable[[Log], Any], op: WriteLog, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(Log(Unconnected()))
    assert capsys.readouterr().err == text
