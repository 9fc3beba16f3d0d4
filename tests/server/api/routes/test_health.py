"""Liveness, readiness and metrics."""

from __future__ import annotations

from pathlib import Path

import httpx2

from plugbay.host.host import Host
from plugbay.server.app import create_app
from tests.support.gateways import client_of, gateway_at
from tests.support.loops import Run


def test_liveness_and_failed_checks_are_reported(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        host = Host([])
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway:
            app = create_app(gateway)
            transport = httpx2.ASGITransport(app=app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as nobody:
                assert (await nobody.get("/livez")).json() == {"status": "alive"}
                ready = await nobody.get("/readyz")
                assert ready.status_code == 200 and set(ready.json()["checks"].values()) == {"ok"}
                app.state.closing.set()
                assert (await nobody.get("/readyz")).json()["checks"]["server"] == "stopping"
                await host.stop()
                late = await nobody.get("/readyz")
                assert (late.status_code, late.json()["checks"]["host"]) == (503, "not running")
                assert (await nobody.get("/metrics")).status_code == 401

    run(main)


def test_metrics_are_text(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await client.get("/livez")
            answer = await client.get("/metrics")
            assert answer.headers["content-type"].startswith("text/plain")
            assert 'plugbay_http_requests_total{method="GET",route="/livez",status="200"} 1.0' in answer.text

    run(main)
