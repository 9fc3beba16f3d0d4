"""A running adapter: its processes end with its host, calls are cancelled through it, and other hosts are refused."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from plugbay import Host, SyncHost
from plugbay.adapters.pin import Pin
from plugbay.adapters.serving import LazySource
from tests.adapters.adapting import SOURCE, adapt, hosted
from tests.sdk.everywhere import REACHES, written
from tests.support.invoking import alive
from tests.support.mcp_servers import write_server
from tests.support.patience import PATIENCE, until, until_blocking
from tests.support.tiers import exhaustive, few

RECORDS_ITS_PID = """
import os
with open(FLAGS + "/pids", "a") as file:
    file.write(f"{os.getpid()}\\n")

TOOLS = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in ("echo", "hang")]

def tools_call(m):
    if m["params"]["name"] == "hang":
        open(FLAGS + "/hangs", "w").close()
    else:
        reply(m, content=[], structuredContent=m["params"].get("arguments") or {})

def notifications_cancelled(m):
    open(FLAGS + "/cancelled", "w").close()
"""


def server(tmp_path: Path) -> Path:
    return write_server(tmp_path / "servers", body=f"FLAGS = {str(tmp_path)!r}\n{RECORDS_ITS_PID}")


def pids(tmp_path: Path) -> list[int]:
    return list(map(int, (tmp_path / "pids").read_text().split()))


@pytest.mark.parametrize("target", few(("nexo", "mcp", "vai", "kaged", "ainb", "rune"), 1))
def test_nothing_is_left_when_the_host_ends(tmp_path: Path, target: str) -> None:
    folder, pin = adapt(server(tmp_path), target, tmp_path)
    (tmp_path / "pids").unlink()
    with hosted(folder, pin, tmp_path) as reach:
        assert reach.call("echo", {"text": "hello"}).value == {"text": "hello"}
        (source,) = pids(tmp_path)
        assert alive(source)
    until_blocking(lambda: not alive(source))


def test_nothing_is_left_when_the_adapter_is_killed(tmp_path: Path) -> None:
    folder, pin = adapt(server(tmp_path), "kaged", tmp_path)
    (tmp_path / "pids").unlink()
    with hosted(folder, pin, tmp_path) as reach:
        reach.call("echo", {})
        (source,) = pids(tmp_path)
        (adapter,) = reach.host.host.processes()["srv"]
        os.kill(adapter, signal.SIGKILL)
        until_blocking(lambda: not alive(source))
        until_blocking(lambda: reach.host.plugins()[0].pid != adapter)
        assert reach.call("echo", {"text": "again"}).value == {"text": "again"}


@pytest.mark.parametrize("target", few(("vai", "mcp", "rune"), 1))
def test_a_call_that_the_host_cancels_is_cancelled_at_the_source(tmp_path: Path, target: str) -> None:
    folder, _ = adapt(server(tmp_path), target, tmp_path)

    async def cancel(host: Host) -> None:
        call = asyncio.ensure_future(host.call("hang", {}, timeout=PATIENCE))
        await until((tmp_path / "hangs").exists)
        call.cancel()
        await until((tmp_path / "cancelled").exists)

    async def work() -> None:
        manifest = folder / REACHES[target].manifest
        async with Host.load(
            manifest, grant_all=True, unconfined=True, eager=False, state_dir=tmp_path / "outer"
        ) as host:
            await cancel(host)

    asyncio.run(work())


def test_the_operator_s_timeout_holds_behind_an_adapter(tmp_path: Path) -> None:
    (tmp_path / "plugbay.toml").write_text("[plugins.srv]\ntimeouts = { call = 0.5 }\n")
    folder, pin = adapt(server(tmp_path), "nexo", tmp_path)
    outer = tmp_path / "outer.toml"
    outer.write_text("[plugins.srv]\ntimeouts = { call = 20.0 }\n")
    with hosted(folder, pin, tmp_path, config=outer) as reach:
        assert reach.call("hang", {}).code == "plugin_error"  # the outer host's own verdict is a timeout


@exhaustive
def test_two_adapters_of_one_source_do_not_disturb_each_other(tmp_path: Path) -> None:
    folder, pin = adapt(server(tmp_path), "nexo", tmp_path)
    with hosted(folder, pin, tmp_path) as one, hosted(folder, pin, tmp_path) as other:
        assert one.call("echo", {"n": 1}).value == {"n": 1}
        assert other.call("echo", {"n": 2}).value == {"n": 2}
        assert len(set(pids(tmp_path)[-2:])) == 2


def test_a_closed_input_ends_the_adapter(tmp_path: Path) -> None:
    folder, _ = adapt(server(tmp_path), "kaged", tmp_path)
    done = subprocess.run([folder / "adapter"], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (0, b"")


def test_a_host_of_another_contract_is_refused(tmp_path: Path) -> None:
    folder, _ = adapt(server(tmp_path), "kaged", tmp_path)
    greeting = b'{"type":"handshake","protocol_version":"rterm.plugin.v1"}\n'
    done = subprocess.run([folder / "adapter"], input=greeting, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert b"is an adapter for hosts of kaged" in done.stderr


def test_a_broken_pin_ends_the_program_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "adapter.json").write_text("{}")
    command = [sys.executable, "-m", "plugbay.adapters", str(tmp_path / "adapter.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert "run plugbay adapt again" in done.stderr


def test_a_source_that_was_never_used_needs_no_end() -> None:
    pin = Pin.__new__(Pin)
    asyncio.run(LazySource(pin).stop())


def test_the_adapter_greets_before_its_source_runs(tmp_path: Path) -> None:
    folder = written(tmp_path, SOURCE)
    made, pin = adapt(folder / "kaged-plugin.yaml", "nexo", tmp_path)
    (folder / "kaged-plugin.yaml").unlink()
    with hosted(made, pin, tmp_path) as reach:
        assert isinstance(reach.host, SyncHost)
        failed = reach.call("echo", {"text": "x"})
        assert failed.code == "unavailable"
        assert "cannot be found any more" in failed.message
