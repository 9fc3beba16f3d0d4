"""The log format of a server."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from plugbay.server.logs import formatter
from tests.support.requirements import requirement

PROGRAM = """
import logging
from plugbay.server import logs
logs.configure()
logging.getLogger("plugbay.access").info("request", extra={"status": 200})
logging.getLogger("alembic").info("not heard")
"""


def test_a_line_is_json_with_all_fields() -> None:
    record = logging.LogRecord("plugbay.access", logging.INFO, "", 0, "request %s", ("one",), None)
    record.status = 200
    line = json.loads(formatter(as_json=True).format(record))
    assert (line["event"], line["level"], line["logger"], line["status"]) == (
        "request one",
        "info",
        "plugbay.access",
        200,
    )
    assert line["timestamp"].endswith("Z")


def test_an_error_has_its_traceback_on_one_line() -> None:
    try:
        raise LookupError("here")
    except LookupError:
        record = logging.LogRecord("plugbay", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    shown = formatter(as_json=True).format(record)
    assert "\n" not in shown and "LookupError: here" in json.loads(shown)["exception"]


def test_values_that_json_cannot_encode_are_logged_too() -> None:
    record = logging.LogRecord("plugbay", logging.WARNING, "", 0, "odd", (), None)
    record.where, record.name_ = Path("/tmp"), "a\n\ud800"
    shown = formatter(as_json=True).format(record)
    assert "\n" not in shown and json.loads(shown)["where"] == repr(Path("/tmp"))
    assert json.loads(shown)["level"] == "warning" and set(json.loads(shown)) == {
        *("event", "level", "logger", "timestamp"),
        *("where", "name_"),
    }


def test_without_a_terminal_the_log_is_json_on_stderr_and_libraries_are_quiet() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["status"] == 200


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_no_color_turns_colours_off(monkeypatch: pytest.MonkeyPatch, no_color: str, coloured: bool) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("NO_COLOR", no_color)
    record = logging.LogRecord("plugbay", logging.INFO, "", 0, "started", (), None)
    assert ("\x1b" in formatter(as_json=False).format(record)) is coloured


def test_for_a_person_it_is_a_line_of_words() -> None:
    record = logging.LogRecord("plugbay", logging.INFO, "", 0, "started", (), None)
    assert "started" in formatter(as_json=False).format(record)


@requirement("host:start-light")
def test_json_lines_load_nothing_for_terminals() -> None:
    code = (
        "import sys; from plugbay.server import logs; logs.formatter({}); "
        "print(sorted({{'structlog', 'rich'}} & set(sys.modules)))"
    )
    loaded = [
        subprocess.run([sys.executable, "-c", code.format(as_json)], capture_output=True, text=True, check=True).stdout
        for as_json in (True, False)
    ]
    assert loaded == ["[]\n", "['rich', 'structlog']\n"]
