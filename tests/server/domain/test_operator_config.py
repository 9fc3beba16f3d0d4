"""plugbay.toml of a running server: rewritten in place, one change at a time, and nothing of it after a refusal."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plugbay.host.config.editing import locked, set_grants
from plugbay.host.host import Host
from plugbay.server.domain import operator_config as module
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.operator_config import OperatorConfig
from tests.support.gateways import code_of
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.plugins import write_plugin


def config_of(host: Host, tmp_path: Path, text: str | None = None) -> OperatorConfig:
    (tmp_path / "data").mkdir(exist_ok=True)
    if text is not None:
        (tmp_path / "plugbay.toml").write_text(text)
    return OperatorConfig(host, tmp_path / "plugbay.toml", tmp_path / "data/new")


def test_the_file_is_rewritten_in_place_with_its_mode(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with Host([]) as host:
            config = config_of(host, tmp_path, "# Ours.\n")
            path = tmp_path / "plugbay.toml"
            path.chmod(0o640)
            number = path.stat().st_ino
            await config.edit(lambda document: set_grants(document, "p", lambda _: ["network"]))
            assert path.read_text() == '# Ours.\n\n[plugins.p]\ngrants = ["network"]\n'
            assert path.stat().st_mode & 0o777 == 0o640
            assert path.stat().st_ino == number, "another file took its name, which removes the covers of plugins"
            assert host.config.plugin("p").grants == ["network"]

    run(main)


def test_a_file_that_is_not_there_is_made_for_the_operator_alone(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with Host([]) as host:
            await config_of(host, tmp_path).edit(lambda document: set_grants(document, "p", lambda _: ["network"]))
            assert (tmp_path / "plugbay.toml").stat().st_mode & 0o777 == 0o600

    run(main)


@pytest.mark.parametrize("text", ["[host]\nlog_levle = 1\n", "[host"])
def test_an_invalid_file_is_not_changed(tmp_path: Path, run: Run, text: str) -> None:
    async def main() -> None:
        async with Host([]) as host:
            config = config_of(host, tmp_path, text)
            edit = config.edit(lambda document: set_grants(document, "p", lambda _: ["network"]))
            assert await code_of(edit) == "plugin.config_invalid"
            assert (tmp_path / "plugbay.toml").read_text() == text
            config = config_of(host, tmp_path, "")
            edit = config.edit(lambda document: set_grants(document, "p", lambda _: [" spaces "]))
            assert await code_of(edit) == "plugin.config_invalid"
            assert (tmp_path / "plugbay.toml").read_text() == "" and host.config.plugin("p").grants is None

    run(main)


def test_a_server_without_a_file_says_so(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with Host([]) as host:
            config = OperatorConfig(host, None, tmp_path / "new")
            assert await code_of(config.edit(lambda document: None)) == "plugin.no_config"
            assert (await config.reload()).plugins == ()

    run(main)


def test_a_change_waits_for_a_command_that_changes_the_file(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with Host([]) as host:
            config = config_of(host, tmp_path, "")
            with locked(tmp_path / "plugbay.toml"):
                edit = asyncio.ensure_future(
                    config.edit(lambda document: set_grants(document, "p", lambda _: ["network"]))
                )
                await until(config.changing.locked)
                (tmp_path / "plugbay.toml").write_text("[plugins.q]\nenabled = false\n")
                assert not edit.done()
            await edit
            assert (host.config.plugin("q").enabled, host.config.plugin("p").grants) == (False, ["network"])

    run(main)


def test_a_plugin_that_does_not_start_after_a_change_is_reported(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        async with Host.load(tmp_path / "plugins") as host:
            with pytest.raises(GatewayError) as raised:
                await module.finish("q", host.reload("q"))
            assert raised.value.code == "plugin.not_started" and "'q'" in raised.value.message
            monkeypatch.setattr(module, "OPERATION_SECONDS", 0.01)
            going = asyncio.Event()
            await module.finish("p", going.wait())  # type: ignore[arg-type]
            going.set()

    run(main)
