"""Live streams of pages come and go: a server that has closed five hundred of them still tells what changes."""

from __future__ import annotations

import os
from pathlib import Path

import httpx2

from tests.server.test_server import Served, served
from tests.support.patience import PATIENCE, until_blocking
from tests.support.plugins import write_plugin
from tests.support.tiers import exhaustive

MIB = 1 << 20


def open_and_close(client: httpx2.Client, number: int) -> None:
    """So many streams, each closed after its first bytes."""
    for _ in range(number):
        with client.stream("GET", "/live/plugins") as stream:
            assert stream.status_code == 200, stream.read()
            assert next(stream.iter_bytes())


def private_memory(server: Served) -> int:
    fields = Path(f"/proc/{server.process.pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) << 10 for line in fields}
    return sizes["Private_Clean"] + sizes["Private_Dirty"]


def descriptors(server: Served) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


@exhaustive
def test_live_updates_work_after_five_hundred_streams(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "p")
    with served(tmp_path, "plugins") as server, server.client() as operator:
        with httpx2.Client(base_url=server.facts["url"], timeout=PATIENCE, follow_redirects=True) as page:
            page.get(operator.post("/api/v1/dashboard-links").json()["url"]).raise_for_status()
            open_and_close(page, 100)  # caches and pools are full by then
            before = descriptors(server), private_memory(server)
            open_and_close(page, 400)
            until_blocking(lambda: descriptors(server) <= before[0])
            assert private_memory(server) - before[1] < 4 * MIB
            with page.stream("GET", "/live/plugins") as stream:
                lines = stream.iter_lines()
                assert any("idle" in line for line in lines)
                assert operator.post("/api/v1/plugins/p:stop").status_code == 200
                assert any("stopped" in line for line in lines)
        assert server.end() == 0
