"""Discovers, greets, calls, taps and records a plugin of the seventh contract with a real host; prints JSON.

`test_seventh_contract.py` runs it with a source tree that has the contract: `python use.py PLUGIN RECORDINGS STATE`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from plugbay import Host
from plugbay.link.recording import Frame


async def main(plugin: str, recordings: str, state: str) -> None:
    async with Host.load(plugin, grant_all=True, unconfined=True, record=recordings, state_dir=Path(state)) as host:
        spec = next(iter(host.specs.values()))
        with host.tap(spec.id) as tap:
            results = [await host.call(f"{spec.id}/sketch_double", {"number": number}) for number in (21, 4)]
        frames = [item for item in tap.rest() if isinstance(item, Frame)]
    print(
        json.dumps(
            {
                "contract": spec.contract,
                "results": results,
                "directions": sorted({frame.direction for frame in frames}),
                "problems": [frame.problem for frame in frames if frame.problem],
            }
        )
    )


asyncio.run(main(*sys.argv[1:]))
