"""Calls in the background: followed, cancelled, remembered, bounded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plugbay.server.dashboard import tries
from plugbay.server.dashboard.live import TryFeed
from plugbay.server.dashboard.tries import MAX_PIECES, Tries, Try
from plugbay.server.domain.errors import GatewayError
from tests.support.dashboards import hosting_at
from tests.support.loops import Run
from tests.support.patience import PATIENCE, until
from tests.support.plugins import ECHO_SH, write_plugin

WAITS = "while [ ! -e go ]; do sleep 0.02; done\n"


def test_a_call_runs_is_remembered_and_belongs_to_its_session(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway:
            all, mine, other = Tries(gateway.host, gateway.clock), object(), object()
            made = all.begin(mine, "p/t", {"a": 1}, None, keep=True)
            await all.wait(made, PATIENCE)
            assert made.result is not None and made.result.value() == {"a": 1} and not made.is_running
            assert made.kept == '{\n  "a": 1\n}' and all.get(mine, made.id) is made
            plain = all.begin(mine, "p/t", {"a": 2}, None, keep=False)
            await all.wait(plain, PATIENCE)
            assert plain.kept == "", "an input is kept only if it shall be"
            assert all.of(mine, "p/t") == [plain, made] and all.of(mine, "p/u") == all.of(other, "p/t") == []
            for owner, id in ((other, made.id), (mine, "none")):
                with pytest.raises(GatewayError, match=r"call\.not_found"):
                    all.get(owner, id)

    run(main)


def test_a_running_call_is_cancelled(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p", script=WAITS + ECHO_SH)

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway:
            all = Tries(gateway.host, gateway.clock)
            made = all.begin(None, "p/t", {}, 60.0, keep=False)
            await until(lambda: "p" in gateway.host.processes())
            await all.wait(made, 0)
            assert made.is_running
            all.cancel(made)
            await all.wait(made, PATIENCE)
            assert made.cancelled and made.result is None and not made.is_running
            all.cancel(made)
            await until(lambda: not gateway.host.processes())

    run(main)


def test_the_number_of_calls_is_bounded(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "MAX_RUNNING", 2)
    monkeypatch.setattr(tries, "MAX_KEPT", 3)
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway:
            all = Tries(gateway.host, gateway.clock)
            for _ in range(3):
                first = [all.begin(None, "nobody/t", {}, None, keep=False) for _ in range(2)]
                with pytest.raises(GatewayError, match="2 calls of the dashboard are running already"):
                    all.begin(None, "nobody/t", {}, None, keep=False)
                await asyncio.gather(*(all.wait(each, PATIENCE) for each in first))
            assert len(all.of(None, "nobody/t")) <= 4
            long = all.begin(None, "nobody/t", "x" * tries.MAX_INPUT, None, keep=True)
            assert long.kept == "", "too long to be kept"
            await all.wait(long, PATIENCE)

    run(main)


def test_pieces_are_kept_shown_once_and_bounded(run: Run) -> None:
    async def main() -> None:
        made = Try("id", None, "p/t", 0.0)
        feed = TryFeed(made)
        (filled,) = feed.new_events()
        assert filled.data["fill"] and feed.new_events() == []
        made.take("a <b>")
        made.take({"done": 1})
        (event,) = feed.new_events()
        assert "a &lt;b&gt;" in event.data["html"] and "&#34;done&#34;:1" in event.data["html"]
        for number in range(MAX_PIECES + 200):
            made.take(f"piece {number} " + "x" * 9_000)
        (flood,) = feed.new_events()
        assert flood.data["html"].count("<li><span") == MAX_PIECES and "… 200 not shown" in flood.data["html"]
        assert len(made.pieces) == MAX_PIECES and len(flood.data["html"]) < 2_000_000
        assert feed.new_events() == []
        assert "Cancel" in (await feed.regions())["try"].html(0.0, form_key="key")

    run(main)
