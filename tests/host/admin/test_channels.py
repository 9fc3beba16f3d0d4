"""Channels start with the processes of their plugins. Real processes, and a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path

from plugbay import Host
from plugbay.host.admin.channels import ChannelStarter
from tests.cli.conftest import wait_until
from tests.server.test_server import served
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.requirements import requirement

CHANNEL = """
def channel_start(m):
    with open(FILE, "a") as file:
        file.write(m["params"]["kind"] + "\\n")
    reply(m, {"ok": True})

def tool_invoke(m):
    os._exit(1)
"""
"""Writes down each start; its tool ends the process."""

RESPAWNS = "[plugin.supervisor]\nrespawn = true\nbackoff_ms = 100\n"


def write_channel(folder: Path, starts: Path) -> None:
    body = f"FILE = {str(starts)!r}\n" + CHANNEL
    write_nexo_plugin(
        folder, "p", body, tools=["die"], extends={"channels": ["chat"]}, channels=["chat"], more=RESPAWNS
    )


def read(starts: Path) -> list[str]:
    return starts.read_text().split() if starts.exists() else []


@requirement("host:channels-start")
def test_channels_of_a_server_start_with_it_and_again_after_a_respawn(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    write_channel(tmp_path / "plugins", starts)
    with served(tmp_path, "plugins") as server, server.client() as client:
        wait_until(lambda: read(starts) == ["chat"], "the channel")
        client.post("/api/v1/calls", json={"export": "p/p_die"})
        wait_until(lambda: read(starts) == ["chat", "chat"], "the channel of the new process")
        client.post("/api/v1/plugins/p:reload")
        wait_until(lambda: read(starts) == ["chat"] * 3, "the channel after a reload")
        assert server.end() == 0


@requirement("host:channels-start")
def test_a_channel_that_does_not_start_is_noted_and_the_plugin_goes_on(run: Run, tmp_path: Path) -> None:
    body = 'def channel_start(m):\n    fail(m, -32000, "no network")\n'
    write_nexo_plugin(tmp_path, "p", body, tools=["echo"], extends={"channels": ["chat"]}, channels=["chat"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            noted = asyncio.Event()
            host.journal.listen(lambda _, note: noted.set() if note.kind == "channel_failed" else None)
            running = asyncio.ensure_future(ChannelStarter(host).run())
            await noted.wait()
            (note,) = [note for note in host.journal.recent("p") if note.kind == "channel_failed"]
            assert "the channel chat did not start: " in note.text and "no network" in note.text
            assert await host.call("p_echo", {"a": 1}) == {"a": 1}
            running.cancel()
            await asyncio.wait({running})

    run(main)
