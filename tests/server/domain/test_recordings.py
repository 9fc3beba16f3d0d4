"""Recordings of the wire in a folder of the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.server.domain import recordings
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.principal import OPERATOR
from plugbay.store.pages import Page
from tests.support.dashboards import hosting_at
from tests.support.loops import Run
from tests.support.plugins import write_plugin


def test_recordings_are_listed_bounded_and_audited(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugin(tmp_path / "plugins", "p")
    write_plugin(tmp_path / "plugins", "q")
    monkeypatch.setattr(recordings, "MAX_RECORDINGS", 2)

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway:
            kept, folder = gateway.recordings, tmp_path / "recordings"
            assert kept.list() == []
            await kept.begin(OPERATOR, "p")
            assert folder.stat().st_mode & 0o077 == 0 and kept.is_running("p")
            assert (await gateway.host.attempt("p/t", {})).failure is None
            await kept.end(OPERATOR, "p")
            await kept.begin(OPERATOR, "p")
            assert [(each.name, each.running) for each in kept.list("p")] == [("p.2.jsonl", True), ("p.jsonl", False)]
            assert kept.list("q") == []
            with pytest.raises(GatewayError, match="there are 2 recordings"):
                await kept.begin(OPERATOR, "q")
            with pytest.raises(GatewayError, match=r"plugin\.not_found"):
                await kept.begin(OPERATOR, "nobody")
            recording = await kept.read("p.jsonl")
            assert recording.header.plugin_id == "p" and recording.frames() and recording.end is not None
            (folder / "odd.jsonl").write_text("{}\n")
            assert "odd.jsonl" not in [each.name for each in kept.list()], "no recording"
            actions = [entry.action for entry in (await gateway.audit.page(OPERATOR, Page())).items]
            assert actions == ["plugin.record", "plugin.record_end", "plugin.record"]

    run(main)


def test_of_a_long_recording_the_beginning_is_read(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway:
            await gateway.recordings.begin(OPERATOR, "p")
            await gateway.host.attempt("p/t", {})
            await gateway.recordings.end(OPERATOR, "p")
            monkeypatch.setattr(recordings, "MAX_LINES", 3)
            assert len((await gateway.recordings.read("p.jsonl")).items) == 2
            monkeypatch.setattr(recordings, "MAX_BYTES", 300)
            short = await gateway.recordings.read("p.jsonl")
            assert short.end is None and len(short.items) < 2

    run(main)
