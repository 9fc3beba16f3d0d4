"""What a plugin keeps is measured while it runs and before it starts. Real children, confined by the real sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay import CallFailed, Host
from plugbay.host.confinement import state_watch
from plugbay.host.confinement.state_watch import overfull
from plugbay.model.errors import Code
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run

MIB = 1 << 20

KEEPS = """
def tool(name, params, m):
    how = params["how"]
    path = os.path.expanduser("~/" + how)
    if how == "little":
        open(path, "wb").write(bytes(1 << 19))
        reply(m, "kept")
        return
    if how == "large":
        open(path, "wb").write(b"x" * (4 << 20))
    if how == "nameless":
        global held
        held = open(path, "wb")
        os.unlink(path)
        held.write(b"x" * (4 << 20))
        held.flush()
"""

CONFIG = """
[host]
state_dir = "state"
[plugins.p.sandbox]
limits = { state = "2 MiB" }
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_watch, "LOOK_SECONDS", 0.02)


def loaded(root: Path, toml: str = CONFIG) -> Host:
    config = root.parent / "plugbay.toml"
    config.write_text(toml)
    return Host.load(root, config=config, grant_all=True)


@pytest.mark.parametrize("how", ["large", "nameless"])
def test_a_plugin_that_keeps_too_much_is_killed_and_told_why(run: Run, tmp_path: Path, how: str) -> None:
    root = write_kaged_plugin(tmp_path / "plugins", body=KEEPS)

    async def main() -> None:
        async with loaded(root) as host:
            assert await host.call("echo", {"how": "little"}) == "kept"
            with pytest.raises(CallFailed) as caught:
                await host.call("echo", {"how": how}, timeout=120)
            failure = caught.value.failure
            assert failure.code == Code.CRASHED
            assert failure.detail["cause"].endswith("/state/plugins/p is too full: it has more than 2,097,152 bytes")
            assert "limits = { state" in failure.detail["hint"]
            assert host.journal.counts("p")["too_much_state"] == 1

    run(main)


def test_a_plugin_that_keeps_too_much_is_not_started_before_there_is_room(run: Run, tmp_path: Path) -> None:
    root = write_kaged_plugin(tmp_path / "plugins", body=KEEPS)
    kept = root.parent / "state" / "plugins" / "p" / "large"

    async def main() -> None:
        async with loaded(root) as host:
            assert await host.call("echo", {"how": "little"}) == "kept"
        kept.write_bytes(b"x" * 3 * MIB)
        async with loaded(root) as host:
            with pytest.raises(CallFailed) as caught:
                await host.call("echo", {"how": "little"})
            assert "is too full: it has more than 2,097,152 bytes" in str(caught.value)
            assert "remove from it what is not needed" in caught.value.failure.detail["hint"]
        kept.unlink()
        async with loaded(root) as host:
            assert await host.call("echo", {"how": "little"}) == "kept"

    run(main)


def test_a_larger_limit_leaves_room_for_more(run: Run, tmp_path: Path) -> None:
    body = KEEPS + '    reply(m, "kept")\n'
    root = write_kaged_plugin(tmp_path / "plugins", body=body)

    async def main() -> None:
        async with loaded(root, CONFIG.replace("2 MiB", "64 MiB")) as host:
            for how in ("large", "nameless", "little"):
                assert await host.call("echo", {"how": how}) == "kept"
            assert "too_much_state" not in host.journal.counts("p")

    run(main)


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert overfull(1 << 30, tmp_path / "never", 1) is None
