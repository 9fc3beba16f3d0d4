"""The memory of agents for the operator: failures of the memory become errors of the API."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.host.host import Host
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.principal import OPERATOR
from tests.support.gateways import gateway_at
from tests.support.loops import Run
from tests.support.requirements import requirement


@requirement("host:memory-operate")
def test_failures_of_the_memory_are_errors_of_the_api(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "memory.db").write_text("no database, and long enough to be taken for one " * 100)

    async def main() -> None:
        host = Host([], state_dir=tmp_path / "state")
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway:
            with pytest.raises(GatewayError, match=r"memory\.unavailable"):
                await gateway.operator_memory.recall("a", "tea", 10)
            with pytest.raises(GatewayError, match=r"memory\.invalid"):
                await gateway.operator_memory.remember(OPERATOR, "a", "\u00e4" * 65_000, (), None)

    run(main)
