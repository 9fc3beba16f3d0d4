"""One log for each label, where there is a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from plugbay.process.logs import Logs


def test_a_label_keeps_its_log_and_two_labels_have_two(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "deep" / "logs")
    first = logs.of("a")
    assert first is not None
    assert first is logs.of("a")
    assert first is not logs.of("b")
    first.write([b"line"], "[1]")
    assert "line" in (tmp_path / "deep" / "logs" / "a.log").read_text()


def test_a_folder_that_was_cleaned_up_is_made_again(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "logs")
    logs.of("a")
    shutil.rmtree(tmp_path / "logs")
    logs.of("b")
    assert (tmp_path / "logs").is_dir()


def test_without_a_folder_nobody_has_a_log_and_a_bad_one_is_no_error() -> None:
    assert Logs(None).of("a") is None
    assert Logs(Path("/dev/null/logs")).of("a") is not None
