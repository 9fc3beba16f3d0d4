"""A gateway that has a plugin asked by fifty at once, and tells of each invocation once it was answered, until it dies.

`python -m tests.server.domain.acknowledging DATABASE_URL FOLDER` prints one line for each answer: id and status.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from plugbay.host.request import CallRequest
from plugbay.server.domain.settings import GatewaySettings
from plugbay.store.failures import StoreUnavailable
from tests.support.gateways import gateway_at, make_org
from tests.support.packaged import Publisher, bind
from tests.support.vai import export

AT_ONCE = 50


async def main(url: str, folder: Path) -> None:
    async with gateway_at(url, folder, settings=GatewaySettings(folder, unconfined=True)) as gateway:
        await make_org(gateway)
        exports = [export("t", execution_class="worker", max_concurrency=64)]
        binding = await bind(gateway, await Publisher(folder, folder).bring(gateway, exports=exports))
        work = CallRequest(org_id="org_1", project_id="proj_1", binding_id=binding.id, input={})

        async def ask() -> None:
            while True:
                try:
                    result = await gateway.invocations.invoke(work)
                except StoreUnavailable:  # fifty want a connection at once; a client tries again
                    continue
                assert result.invocation is not None
                os.write(1, f"{result.invocation.invocation_id} {result.invocation.status}\n".encode())

        await asyncio.gather(*(ask() for _ in range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
