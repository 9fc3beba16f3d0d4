"""Live streams of pages come and go: a server that has closed five hundred of them still tells what changes."""

from __future__ import annotations

import time
from pathlib import Path

import httpx2

from tests.server.test_server import served
from tests.support.patience import PATIENCE, until_blocking
from tests.support.plugins import write_plugin
from tests.support.tiers import exhaustive
from tests.support.usage import descriptor_count, private_memory

MIB = 1 << 20


def open_and_close(client: httpx2.Client, number: int) -> None:
    """So many streams, each closed after its first bytes. A fast machine meets the limit of requests, and waits."""
    opened = 0
    while opened < number:
        with client.stream("GET", "/live/plugins") as stream:
            if stream.status_code == 429:
                time.sleep(float(stream.headers["retry-after"]))
                continue
            assert stream.status_code == 200, stream.read()
            assert next(stream.iter_bytes())
            opened += 1


@exhaustive
def test_live_updates_work_after_five_hundred_streams(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "p")
    with served(tmp_path, "plugins") as server, server.client() as operator:
        with httpx2.Client(base_url=server.facts["url"], timeout=PATIENCE, follow_redirects=True) as page:
            page.get(operator.post("/api/v1/dashboard-links").json()["url"]).raise_for_status()
            open_and_close(page, 100)  # caches and pools are full by then
            pid = server.process.pid
            before = descriptor_count(pid), private_memory(pid)
            open_and_close(page, 400)
            until_blocking(lambda: descriptor_count(pid) <= before[0])
            assert private_memory(pid) - before[1] < 4 * MIB
            with page.stream("GET", "/live/plugins") as stream:
                lines = stream.iter_lines()
                assert any("idle" in line for line in lines)
                assert operator.post("/api/v1/plugins/p:stop").status_code == 200
                assert any("stopped" in line for line in lines)
        assert server.end() == 0
