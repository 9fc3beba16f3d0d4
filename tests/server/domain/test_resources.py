"""Memory and CPU of real plugins, in a ring of an hour."""

from __future__ import annotations

from pathlib import Path

from plugbay.server.domain import resources
from plugbay.server.domain.resources import KEPT_SAMPLES, ResourceHistory
from tests.support.clocks import TurnedClock
from tests.support.dashboards import hosting_at
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import until


def test_a_sample_has_every_process_and_the_ring_is_bounded(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_nexo_plugin(tmp_path / "plugins", "shop", tools=["t"])

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "shop") as gateway:
            clock = TurnedClock()
            history = ResourceHistory(gateway.host, clock)
            await gateway.host.meet("shop")
            await until(lambda: "shop" in gateway.host.processes())
            await history.sample()
            first = history.samples[0]
            assert first.at == clock.now() and first.total.memory > 1 << 20
            assert first.total.cpu is None, "nothing to compare with"
            history._seconds = {pid: seconds - 5 for pid, seconds in history._seconds.items()}  # as if it were busy
            clock.turn(10)
            await history.sample()
            used = history.plugins["shop"].cpu
            assert used is not None and used >= 0.5 and history.samples[1].total == history.plugins["shop"]
            await gateway.host.supervisor("shop").stop()  # type: ignore[union-attr]
            await until(lambda: not gateway.host.processes())
            for _ in range(KEPT_SAMPLES):
                clock.turn(10)
                await history.sample()
            assert len(history.samples) == KEPT_SAMPLES and history.plugins == {}
            assert history.samples[0].total == resources.Usage(0, 0.0)

    run(main)


def test_a_gateway_takes_samples(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway:
            await until(lambda: len(gateway.resources.samples) == 1)
            assert "resource samples" in gateway.tasks.names

    run(main)
