"""pytest fixtures, available wherever plugbay is installed.

    plugbay_host     a real host over folders of plugins, running, in its own thread
    fake_plugin      a plugin whose process follows a script
    bad_plugin       a plugin of the conformance kit that breaks one rule
    replay_plugin    a recording in place of a plugin

pytest loads this in every project, so it must import nothing before a fixture is used. Works with any async test
runner.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plugbay.host.sync import SyncHost
    from plugbay.testing.faults import Fault
    from plugbay.testing.plugins import BadPlugin, FakePlugin

    class StartHost(Protocol):
        def __call__(self, *paths: str | Path, toml: str = "", **options: Any) -> SyncHost: ...

    class MakeFake(Protocol):
        def __call__(
            self,
            tools: Mapping[str, Any],
            *,
            contract: str = "nexo",
            id: str = "fake",
            version: str = "1.0.0",
            fault: Fault | None = None,
        ) -> FakePlugin: ...

    class MakeBad(Protocol):
        def __call__(self, name: str) -> BadPlugin: ...

    class MakeReplay(Protocol):
        def __call__(self, file: str | Path, like: str | Path, *, loose: bool = False) -> Path: ...


@pytest.fixture
def plugbay_host(tmp_path: Path) -> Iterator[StartHost]:
    """`plugbay_host(path, …)`: a running `SyncHost` over plugins, stopped at the end of the test.

    `toml` is the text of a plugbay.toml; options are those of `Host`. By default everything is granted, nothing is
    confined, and state is stored in the test's own folder.
    """
    from plugbay.host.sync import SyncHost

    with ExitStack() as running:

        def start(*paths: str | Path, toml: str = "", **options: Any) -> SyncHost:
            if toml:
                options["config"] = tmp_path / "plugbay.toml"
                options["config"].write_text(toml, "utf-8")
            if "grants" not in options:
                options.setdefault("grant_all", True)
            usual = {"unconfined": True, "state_dir": tmp_path / "plugbay-state"}
            return running.enter_context(SyncHost.load(*map(str, paths), **{**usual, **options}))

        yield start


@pytest.fixture
def fake_plugin(tmp_path: Path) -> MakeFake:
    """`fake_plugin({"tool": behaviour})`: a plugin in a folder, `.path`, with the calls it received, `.calls`."""
    from plugbay.testing.plugins import FakePlugin

    def make(tools: Mapping[str, Any], **options: Any) -> FakePlugin:
        return FakePlugin(tmp_path / "fake-plugins", tools, **options)

    return make


@pytest.fixture
def bad_plugin(tmp_path: Path) -> MakeBad:
    """`bad_plugin("nexo/dies_in_call")`: a plugin of the conformance kit that breaks one rule."""
    from plugbay.testing.plugins import bad_plugin

    return lambda name: bad_plugin(name, tmp_path / "bad-plugins")


@pytest.fixture
def replay_plugin(tmp_path: Path) -> MakeReplay:
    """`replay_plugin(file, like=folder)`: a plugin that answers from a recording, with the manifest of that folder."""
    from plugbay.testing.plugins import replay_plugin

    def make(file: str | Path, like: str | Path, *, loose: bool = False) -> Path:
        return replay_plugin(file, like, tmp_path / "replayed-plugins", loose=loose)

    return make
