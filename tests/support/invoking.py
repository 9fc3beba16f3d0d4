"""Hosts whose plugins do their work in invocations, for tests that look at what is left of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from plugbay import Host
from plugbay.host.config import config as configuration
from plugbay.host.discovery.folders import discover
from plugbay.host.ports import InvocationRecord
from tests.support.loops import Run

SCRATCH = {"filesystem": "scratch"}

COUNTS = """
def count():
    with open("count", "a") as file:
        file.write("x")
    return os.path.getsize("count")
"""
"""For the body of a plugin: how often it was asked, over all its children."""


def host_of(root: Path, toml: str = "", **options: Any) -> Host:
    """A host of one package with all its wishes granted; `toml` is what plugbay.toml says of `acme/p`."""
    text = f'[plugins."acme/p"]\n{toml}\n' if toml else ""
    options = {"grant_all": True, "state_dir": root.parent / "state", **options}
    return Host(discover([root]), configuration.parse(text), **options)


def raw_host_of(root: Path, toml: str = "", **options: Any) -> Host:
    """The same, its plugin unconfined: for what is told apart by pids, or writes beside itself what happened to it."""
    return host_of(root, toml, unconfined=True, **options)


def with_host(run: Run, host: Host, main: Callable[[Host], Coroutine[Any, Any, None]]) -> None:
    """Run `main` while the host does."""

    async def story() -> None:
        async with host:
            await main(host)

    run(story)


def records(host: Host) -> list[InvocationRecord]:
    """Every invocation so far, as it is known now."""
    return host.invocations.log.records  # type: ignore[attr-defined, no-any-return]


def rooms(root: Path) -> list[Path]:
    """Every scratch directory that is there."""
    return list((root.parent / "state" / "scratch").glob("host_*/rooms/*/*"))


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
