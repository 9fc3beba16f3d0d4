"""The page about packages is true: its commands run against a real registry, and its table names every reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plugbay.cli.exit_codes import for_refusal
from plugbay.packages.errors import Reason
from tests.docs.test_snippets import ROOT, replay, snippets
from tests.packages.registry_server import serve
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

PAGE = ROOT / "docs" / "packages.md"
KIND = "transcript with a registry"
WRITTEN = "localhost:5000"
"""What the page calls the registry."""


@exhaustive
@requirement("vai:package-transcript")
def test_pack_sign_push_pull_verify_install_call_upgrade_and_rollback_do_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.delenv(f"XDG_{name}_HOME", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    (work / "examples").symlink_to(ROOT / "examples")
    transcripts = [body for kind, _, body, _ in snippets(PAGE) if kind == KIND]
    assert len(transcripts) == 3
    with serve(tmp_path / "registry") as address:
        for transcript in transcripts:
            replay(transcript.replace(WRITTEN, address), work)


def test_the_table_of_statuses_names_every_reason_once_with_its_status() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    listed = {(reason, int(status)) for status, text in rows for reason in re.findall(r"`(\w+)`", text)}
    assert listed == {(str(reason), int(for_refusal(reason))) for reason in Reason}
