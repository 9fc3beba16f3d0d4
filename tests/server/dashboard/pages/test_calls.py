"""Pages of finished calls."""

from __future__ import annotations

import re
from pathlib import Path

from plugbay.host.ports import CallRecord
from plugbay.model.errors import Code, Failure
from plugbay.server.dashboard.live import SHOWN_CALLS
from tests.support.dashboards import hosting_at, text_of, visitor_of
from tests.support.gateways import gateway_at
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.plugins import write_plugin


def call_record(number: int, plugin: str = "p", failure: Failure | None = None) -> CallRecord:
    return CallRecord(f"call_{number}", plugin, "1", "rune", f"export_{number}", 1_000.0 + number, 1.5, failure)


def exports(page: str) -> list[str]:
    return re.findall(r"export_\d+", page)


def test_calls_come_newest_first_and_in_parts(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            assert "None yet." in text_of(await visitor.get("/calls"))
            for number in range(SHOWN_CALLS + 10):
                gateway.calls.finished(call_record(number))
            await gateway.calls.flush()
            first = await visitor.get("/calls")
            assert exports(text_of(first)) == [f"export_{number}" for number in range(59, 9, -1)]
            assert 'data-live="/live/calls"' in first.text
            (older,) = re.findall(r'rel="next" href="([^"]+)"', first.text)
            second = await visitor.get(older)
            assert exports(text_of(second)) == [f"export_{number}" for number in range(9, -1, -1)]
            assert "data-live" not in second.text and "Newest" in text_of(second) and 'rel="next"' not in second.text
            assert (await visitor.get("/calls?cursor=made-up")).status_code == 400

    run(main)


def test_calls_are_narrowed_by_plugin_and_outcome(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            late = Failure(Code.TIMEOUT, "late")
            for each in (call_record(1), call_record(2, "q"), call_record(3, failure=late), call_record(4, "q", late)):
                gateway.calls.finished(each)
            await gateway.calls.flush()
            assert exports(text_of(await visitor.get("/calls?plugin=q"))) == ["export_4", "export_2"]
            failed = await visitor.get("/calls?plugin=p&status=failed")
            assert exports(text_of(failed)) == ["export_3"] and "failed timeout" in text_of(failed)
            assert 'data-live="/live/calls?plugin=p&amp;status=failed"' in failed.text
            assert "None yet." in text_of(await visitor.get("/calls?plugin=%3Cscript%3E&status=odd"))

    run(main)


def test_a_call_has_a_page_with_all_that_was_written_down(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p", script="echo 'no such table' >&2; exit 3\n")

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway, visitor_of(gateway) as visitor:
            result = await gateway.host.attempt("p/t")
            await until(
                lambda: any("no such table" in line.text for line in gateway.host_logs.of("p").logs.tail("p", 10))
            )
            page = await visitor.get(f"/calls/{result.record.call_id}")
            shown = text_of(page)
            for words in (
                "outcome failed",
                "failure crashed from the",
                "process ended with exit code 3",
                "plugin p rune · 1",
                "duration",
            ):
                assert words in shown, words
            assert re.search(r"Log of p during the call .*no such table", shown)
            lost = await gateway.host.attempt("nobody/has_this")
            assert "no plugin has this export" in text_of(await visitor.get(f"/calls/{lost.record.call_id}"))
            assert (await visitor.get("/calls/call_none")).status_code == 404

    run(main)
