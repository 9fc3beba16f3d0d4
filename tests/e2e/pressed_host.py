"""A host that runs short of memory: `python -m tests.e2e.pressed_host FOLDER SETTINGS`, for `test_memory_pressure`.

Waits for a line on stdin, so its parent can put it into a control group before; prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path
from typing import Any

from plugbay import Host
from plugbay.process import limits
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import PATIENCE

USES = """
def tool_invoke(m):
    given = m["params"]["args"]
    kept = bytearray(given.get("use", 0) << 20)
    for at in range(0, len(kept), 4096):
        kept[at] = 1
    reply(m, {"text": "x" * (given.get("answer", 0) << 20)})
"""
"""A tool that uses some MiB of memory, and answers with some MiB."""


async def main(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    for name in ("calm", "large"):
        sandbox = f"[plugin.sandbox]\nenabled = {'true' if settings['confined'] else 'false'}\n"
        write_nexo_plugin(folder / "plugins", name, USES, tools=["t"], more=sandbox)
    limits.OOM_SCORE = settings.get("score", limits.OOM_SCORE)
    async with Host.load(folder / "plugins", grant_all=True, state_dir=folder / "state") as host:

        async def call(name: str, **given: int) -> Any:
            result = await host.attempt(f"{name}_t", given, timeout=PATIENCE)
            failure = result.failure
            return "ok" if failure is None else {"code": failure.code, "message": failure.message, **failure.detail}

        def pid() -> int | None:
            return next(plugin.pid for plugin in host.plugins() if plugin.spec.id == "calm")

        found: dict[str, Any] = {"before": [await call("calm"), await call("large")]}
        calm, ballast = pid(), b"x" * (settings.get("ballast", 0) << 20)
        if "spare" in settings:
            limited = _address_space() + (settings["spare"] << 20)
            resource.setrlimit(resource.RLIMIT_AS, (limited, resource.RLIM_INFINITY))
        found["large"] = await call("large", **settings["asked"])
        found["after"] = await call("calm")
        if "spare" in settings:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        found |= {"again": await call("large"), "same": pid() == calm, "kept": len(ballast) >> 20}
        found["noted"] = host.journal.counts("large").get("out_of_memory", 0)
    return found


def _address_space() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmSize:"))


if __name__ == "__main__":
    sys.stdin.readline()
    print(json.dumps(asyncio.run(main(Path(sys.argv[1]), json.loads(sys.argv[2])))))
