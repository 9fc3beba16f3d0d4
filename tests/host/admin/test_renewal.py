"""What a plugin's folder holds now, in a host that runs."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.admin import operating
from plugbay.host.host import Host
from plugbay.model.errors import CallFailed, Code
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.plugins import write_plugin


def release(folder: Path, version: str, **options: Any) -> None:
    """Another release of `p` in the place where hosts look, as an upgrade leaves it: the folder is a link."""
    program = write_plugin(folder / version, "p", plugin_version=version, **options) / "run.sh"
    program.write_text(program.read_text().replace('"plugin_version":"1"', f'"plugin_version":"{version}"'))
    link = folder / "plugins" / "p"
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(folder / version / "p")


@pytest.mark.parametrize("how", [operating.reload, operating.restart])
def test_a_plugin_is_started_afresh_as_the_release_that_is_there_now(tmp_path: Path, run: Run, how: Any) -> None:
    release(tmp_path, "1.0.0", capabilities=["tool.execute"])

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", grants=["tool.execute"]) as host:
            assert await host.call("p/t", {"a": 1}) == {"a": 1}
            changes = host.subscribe("plugin.catalog.changed")
            tools = [{"name": "u", "capabilities": ["mail.send"]}]
            release(tmp_path, "2.0.0", capabilities=["tool.execute", "mail.send"], tools=tools)
            assert await host.call("p/t", {}) == {}, "nothing happens by itself"
            await how(host, "p")
            status = host.plugins()[0]
            assert (status.spec.version, status.granted) == ("2.0.0", ("tool.execute",))
            assert list(host.exports()) == ["p/u"]
            refused = (await host.attempt("p/u", {})).failure
            assert refused is not None and "mail.send" in refused.message
            assert (await host.attempt("p/t", {})).failure is not None
            told = await anext(changes)
            assert (told.payload["added"], told.payload["removed"]) == (["p/u"], ["p/t"])

    run(main)


def test_a_plugin_that_was_stopped_starts_as_the_release_that_is_there_now(tmp_path: Path, run: Run) -> None:
    release(tmp_path, "1.0.0")

    async def main() -> None:
        async with Host.load(tmp_path / "plugins") as host:
            await operating.stop(host, "p")
            release(tmp_path, "1.1.0")
            await operating.start(host, "p")
            assert host.plugins()[0].spec.version == "1.1.0"
            assert await host.call("p/t", {}) == {}

    run(main)


def test_a_release_that_cannot_be_used_leaves_the_one_before_as_it_is(tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path, "p")
    manifest = tmp_path / "p" / "rterm-plugin.json"
    good = manifest.read_text()

    async def refusal(host: Host) -> str:
        with pytest.raises(CallFailed) as raised:
            await operating.reload(host, "p")
        assert raised.value.code == Code.LAUNCH_FAILED and "plugbay inspect" in raised.value.failure.detail["hint"]
        assert await host.call("p/t", {}) == {}
        return raised.value.failure.message

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            manifest.write_text("{")
            assert "not JSON" in await refusal(host)
            manifest.write_text(good.replace('"p"', '"q"'))
            assert "holds q now" in await refusal(host)
            manifest.unlink()
            assert "no plugin manifest" in await refusal(host)
            manifest.write_text(good)
            await operating.reload(host, "p")

    run(main)


def test_a_release_with_another_ones_names_is_refused(tmp_path: Path, run: Run) -> None:
    write_nexo_plugin(tmp_path, "p", tools=["one"])
    write_nexo_plugin(tmp_path, "q", tools=["one"])

    async def main() -> None:
        async with Host.load(tmp_path, eager=False) as host:
            shutil.copytree(tmp_path / "p", tmp_path / "q", dirs_exist_ok=True)
            with pytest.raises(CallFailed, match="holds p now"):
                await operating.reload(host, "q")

    run(main)


def test_a_release_that_wants_storage_gets_one_in_a_host_that_had_none(tmp_path: Path, run: Run) -> None:
    write_kaged_plugin(tmp_path / "plugins", "notes")

    async def main() -> None:
        options: dict[str, Any] = {
            "state_dir": tmp_path / "state",
            "eager": False,
            "unconfined": True,
            "grant_all": True,
        }
        async with Host.load(tmp_path / "plugins", **options) as host:
            assert host._backends.services.storage is None
            write_kaged_plugin(tmp_path / "plugins", "notes", capabilities=["kaged:storage:read"])
            await operating.reload(host, "notes")
            assert host._backends.services.storage is not None

    run(main)


def test_a_release_brings_and_takes_names(tmp_path: Path, run: Run) -> None:
    write_nexo_plugin(tmp_path, "p", extends={"channels": ["post"]}, channels=["post"])

    async def main() -> None:
        async with Host.load(tmp_path, eager=False) as host:
            assert host.channels.kinds() == ["post"]
            write_nexo_plugin(tmp_path, "p", extends={"channels": ["mail"]}, channels=["mail"])
            await asyncio.gather(operating.reload(host, "p"), operating.reload(host, "p"))
            assert host.channels.kinds() == ["mail"]

    run(main)
