"""Which request is being answered is known to the task that answers it, and to no other."""

from __future__ import annotations

import asyncio

from plugbay.server.domain.request import REQUEST_ID
from tests.support.loops import Run


def test_each_task_knows_its_own_request(run: Run) -> None:
    async def main() -> None:
        async def answer(id: str) -> str | None:
            REQUEST_ID.set(id)
            await asyncio.sleep(0)
            return REQUEST_ID.get()

        assert list(await asyncio.gather(answer("req_1"), answer("req_2"))) == ["req_1", "req_2"]
        assert REQUEST_ID.get() is None

    run(main)
