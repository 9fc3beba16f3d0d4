"""One source under every contract, adapted to every contract, and hosted there by the real host."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plugbay import SyncHost
from plugbay.adapters import folder as adapter_folder
from plugbay.adapters.learn import learn, make_pin
from plugbay.adapters.mapping import Row
from plugbay.adapters.pin import Pin, Settings, Source
from plugbay.adapters.plugin import plugin_with_tools
from plugbay.host.config import config as configuration
from plugbay.host.discovery.folders import discover
from plugbay.host.host import Host
from plugbay.sdk import Plugin
from tests.sdk.everywhere import REACHES, Reach

SOURCE = """
from __future__ import annotations

import os
import time
from plugbay.sdk import Plugin, ToolError

plugin = Plugin("example.source", version="1.2.3", name="Source", description="Tools to adapt.")


@plugin.tool(description="Say it again.", effect="read_only")
def echo(text: str) -> dict:
    return {"text": text}


@plugin.tool(description="Fail.")
def fail(reason: str) -> dict:
    raise ToolError(reason, code="invalid_input")


@plugin.tool(description="Die.")
def die() -> dict:
    os._exit(3)


@plugin.tool(description="Write a file at the start, and another at the end.", timeout=600)
def linger(started: str, ended: str, ctx) -> dict:
    open(started, "w").close()
    ctx.sleep(300)
    open(ended, "w").close()
    return {}


if __name__ == "__main__":
    plugin.run()
"""


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that awaits."""

    @functools.wraps(test)
    def run(*args: Any, **keywords: Any) -> None:
        asyncio.run(test(*args, **keywords))

    return run


def settings(place: Path) -> Settings:
    """The operator's side of a test: everything is granted, nothing is confined; plugbay.toml counts if it is there."""
    config = str(place / "plugbay.toml") if (place / "plugbay.toml").exists() else None
    return Settings(
        config=config, state=str(place / "state"), logs=str(place / "logs"), grant_all=True, unconfined=True
    )


async def pin_of(manifests: Sequence[Path], target: str, place: Path, **options: Any) -> tuple[Pin, tuple[Row, ...]]:
    """The pin of the plugins of some manifests."""
    config = settings(place).config
    found = discover(manifests)
    sources = [
        Source(item.spec.id, item.contract, str(path))
        for path in manifests
        for item in discover([path])
        if item.spec is not None
    ]
    host = Host(
        found,
        configuration.load(Path(config)) if config else None,
        grant_all=True,
        unconfined=True,
        eager=False,
        state_dir=place / "state",
        trusted=[source.id for source in sources],
    )
    async with host:
        await learn(host)
        return make_pin(host, target, sources, settings(place), **options)


def adapt(manifest: Path, target: str, place: Path, **options: Any) -> tuple[Path, Pin]:
    """The folder of an adapter for one manifest, and its pin."""
    pin, rows = asyncio.run(pin_of([manifest], target, place, **options))
    folder = place / "adapters" / adapter_folder.folder_name(pin)
    adapter_folder.write(pin, rows, folder)
    return folder, pin


def described(pin: Pin) -> Plugin:
    """The SDK plugin of a pin, which knows the names of its tools under each contract."""
    return plugin_with_tools(pin, lambda export: lambda input: None)


@contextmanager
def hosted(folder: Path, pin: Pin, place: Path, **options: Any) -> Iterator[Reach]:
    """An adapter in the host of its target."""
    reach = REACHES[pin.target]
    usual = {"grant_all": True, "unconfined": True, "eager": False, "state_dir": place / "outer"}
    with SyncHost.load(folder / reach.manifest, **{**usual, **options}) as host:
        yield reach(host, described(pin))
