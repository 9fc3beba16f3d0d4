"""`adapters`: one SDK plugin directly under each contract, beside the same plugin through `plugbay adapt`.

The source of an adapter is the plugin under nexo; for the target nexo it is the plugin under kaged. Both are called by
the same host, so the ratio is what the adapter adds: a second host, and the wake-ups of one more process.
"""

from __future__ import annotations

import asyncio
import runpy
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.calls import IN_FLIGHT, measure
from bench.harness import (
    CHILDREN,
    PAYLOAD,
    Column,
    Comparison,
    Entry,
    Finding,
    Options,
    Rounds,
    Sample,
    interleave,
    missing,
    serve,
)

NAME = "adapters"
TITLE = "An echo tool of an SDK plugin, directly and through an adapter: 100 bytes"

TARGETS = ("nexo", "kaged", "vai", "mcp")


def run(options: Options) -> Comparison:
    """Each contract directly and adapted, round by round."""
    sizes = {"calls": options.size(1_500, 500), "burst": options.size(3_200, 1_280)}
    entries = [
        Entry(f"{kind}_{target}", f"{target}, {label}", sizes)
        for target in TARGETS
        for kind, label in (("direct", "directly"), ("adapted", "adapted"))
    ]
    rounds = interleave("bench.adapters_bench", entries, options)
    columns = [
        Column("p50_us", "p50 us"),
        Column("p99_us", "p99 us"),
        Column("calls_per_s", f"calls/s, {IN_FLIGHT} in flight", digits=0),
    ]
    return Comparison(NAME, TITLE, _findings(rounds), columns, rounds, missing(entries))


def _findings(rounds: Rounds) -> list[Finding]:
    found: list[Finding] = []
    for target in TARGETS:
        p50 = rounds.ratio(f"adapted_{target}", f"direct_{target}", "p50_us")
        rate = rounds.ratio(f"adapted_{target}", f"direct_{target}", "calls_per_s")
        found.append(Finding(f"{target}: p50 adapted / direct", p50, at_most=2.2))
        found.append(Finding(f"{target}: calls/s at 64, adapted / direct", rate))
    return found


# The contenders.


def _files(contract: str) -> dict[str, str]:
    """The manifest of the plugin, and its program where the contract has one."""
    from plugbay.sdk import manifests

    plugin, command = runpy.run_path(str(CHILDREN / "adapted.py"))["plugin"], [sys.executable, "plugin.py"]
    match contract:
        case "nexo":
            return {"nexo-plugin.toml": manifests.nexo_manifest(plugin, command)}
        case "kaged":
            return {"kaged-plugin.yaml": manifests.kaged_manifest(plugin, command)}
        case "vai":
            return manifests.vai_files(plugin, python=sys.executable)
    return {".mcp.json": manifests.mcp_manifest(plugin, command)}


def _plugin(place: Path, contract: str) -> Path:
    """The manifest of the plugin under a contract."""
    folder, files = place / contract, _files(contract)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
        (folder / path).chmod(0o755)
    shutil.copy(CHILDREN / "adapted.py", folder / "plugin.py")
    return folder / next(iter(files))


async def _adapter(place: Path, target: str) -> Path:
    from plugbay import Host
    from plugbay.adapters import folder as adapter_folder
    from plugbay.adapters.learn import learn, make_pin
    from plugbay.adapters.pin import Settings, Source

    contract = "kaged" if target == "nexo" else "nexo"
    manifest = _plugin(place, contract)
    settings = Settings(state=str(place / "inner"), grant_all=True, unconfined=True)
    options: dict[str, Any] = {"grant_all": True, "unconfined": True, "eager": False}
    async with Host.load(manifest, state_dir=place / "inner", **options) as host:
        await learn(host)
        pin, rows = make_pin(host, target, [Source("bench", contract, str(manifest))], settings)
    folder = place / "adapter"
    adapter_folder.write(pin, rows, folder)
    return folder / next(iter(_files(target)))


async def _measured(target: str, params: dict[str, Any], adapted: bool) -> Sample:
    from plugbay import Host

    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        manifest = await _adapter(place, target) if adapted else _plugin(place, target)
        options: dict[str, Any] = {"grant_all": True, "unconfined": True, "state_dir": place / "outer"}
        async with Host.load(manifest, **options) as host:
            await host.meet()
            tool = next(name for name in host.exports() if name.endswith("echo"))

            async def echo() -> str:
                return _text(await host.call(tool, {"text": PAYLOAD}))

            return await measure(echo, params)


def _text(answer: dict[str, Any]) -> str:
    output = answer.get("structuredContent") or answer.get("structured_output") or answer
    text: str = output["text"]
    return text


def _contender(target: str, adapted: bool) -> Any:
    return lambda params: asyncio.run(_measured(target, params, adapted))


if __name__ == "__main__":
    contenders = {f"direct_{target}": _contender(target, False) for target in TARGETS}
    serve(contenders | {f"adapted_{target}": _contender(target, True) for target in TARGETS})
