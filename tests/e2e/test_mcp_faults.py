"""MCP servers that misbehave, as real processes on real pipes: each ends in a clear failure within its deadline, leaves
nothing running, and harms no other server, which is called while it happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from plugbay import Failure, Host
from plugbay.host.config.config import Config, PluginConfig, TimeoutOverrides
from plugbay.host.discovery.folders import discover
from plugbay.model.errors import Code
from tests.e2e.conftest import carrying, eventually
from tests.support.loops import Run
from tests.support.mcp_servers import write_server
from tests.support.requirements import requirement

SHORT = 1.5
"""Seconds for what never happens."""

AMPLE = 25.0
"""Seconds for what has to happen, on a busy machine."""


STDERR_FIRST = """
for _ in range(512):
    os.write(2, b"x" * 1023 + b"\\n")

def tools_call(m):
    for _ in range(1024):
        os.write(2, b"y" * 1023 + b"\\n")
    reply(m, **text("done"))
"""

JUNK = """
print("loading the model, please wait")

def tools_call(m):
    sys.stdout.write("\\x1b[31mdone\\x1b[0m\\n{not json}\\n[1, 2\\n\\n")
    reply(m, **text("said"))
    print("bye")
"""

SILENT = {
    "greeting": "def initialize(m): pass",
    "list": "def tools_list(m): pass",
    "call": "def tools_call(m): pass",
}

HUGE = """
def tools_call(m):
    if m["params"]["arguments"].get("small"):
        return reply(m, **text("small"))
    os.write(1, b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % m["id"])
    piece = b"z" * (1 << 20)
    for _ in range(200):
        left = memoryview(piece)
        while left:
            left = left[os.write(1, left):]
    os.write(1, b'"}]}}\\n')
"""

DIES = """
def tools_call(m):
    os.write(2, b"out of luck\\n")
    os._exit(3)
"""

FORKS = """
def tools_call(m):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    reply(m, **text("left"))
    sys.stdout.flush()
    os._exit(0)
"""


@asynccontextmanager
async def hosting(folder: Path, body: str, **timeouts: float) -> AsyncIterator[Host]:
    """A host with the bad server and a good one; after it nothing of either is left."""
    write_server(folder, "bad", body)
    write_server(folder, "good")
    config = Config(plugins={"bad": PluginConfig(timeouts=TimeoutOverrides.model_validate(timeouts))})
    async with Host(discover([folder]), config, grant_all=True, state_dir=folder / "state") as host:
        assert host._runtime is not None
        spawner = host._runtime.spawner
        assert await host.meet("good") == {}
        yield host
    mark = f"PLUGBAY_HOST={spawner.warden.mark}"
    assert await eventually(lambda: not spawner.children and not carrying(mark))


async def good_meanwhile(host: Host) -> None:
    """The other server answers, while the bad one is at it."""
    answered = await host.call("good/echo", {"n": 1}, timeout=AMPLE)
    assert answered["content"][0]["text"] == '{"n": 1}'


async def failure_of(host: Host, timeout: float) -> Failure:
    bad = asyncio.create_task(host.attempt("bad/echo", {}, timeout=timeout))
    await good_meanwhile(host)
    failure = (await bad).failure
    assert failure is not None and failure.plugin == "bad"
    await good_meanwhile(host)
    return failure


@requirement("mcp:host-stderr-flood")
def test_a_server_that_floods_stderr_before_and_during_a_call_is_served_all_the_same(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with hosting(tmp_path, STDERR_FIRST) as host:
            bad = asyncio.create_task(host.call("bad/echo", timeout=AMPLE))
            await good_meanwhile(host)
            assert (await bad)["content"][0]["text"] == "done"

    run(main)


@requirement("mcp:host-stdout-junk")
def test_junk_on_stdout_is_noise_and_costs_no_answer(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with hosting(tmp_path, JUNK) as host:
            for _ in range(2):
                assert (await host.call("bad/echo", timeout=AMPLE))["content"][0]["text"] == "said"
            await good_meanwhile(host)
            (bad,) = [status for status in host.plugins() if status.spec.id == "bad"]
            assert bad.counters["noise"] >= 5
            assert bad.generation == 1

    run(main)


@requirement("mcp:host-never-answers")
@pytest.mark.parametrize("when", ["greeting", "list"])
def test_a_server_that_never_comes_through_its_greeting_fails_in_time(run: Run, tmp_path: Path, when: str) -> None:
    async def main() -> None:
        async with hosting(tmp_path, SILENT[when], handshake=SHORT) as host:
            failure = await failure_of(host, timeout=AMPLE)
            assert failure.code == Code.TIMEOUT
            assert "handshake" in failure.message

    run(main)


@requirement("mcp:host-never-answers")
def test_a_call_that_is_never_answered_ends_with_its_time_and_the_server_lives_on(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with hosting(tmp_path, SILENT["call"]) as host:
            await host.meet("bad")
            failure = await failure_of(host, timeout=SHORT)
            assert failure.code == Code.TIMEOUT
            assert {status.spec.id: status.generation for status in host.plugins()} == {"bad": 1, "good": 1}

    run(main)


@requirement("mcp:host-huge-line")
def test_a_line_of_200_mb_fails_its_call_and_the_next_one_is_answered(tmp_path: Path) -> None:
    async def main() -> None:
        async with hosting(tmp_path, HUGE) as host:
            failure = await failure_of(host, timeout=AMPLE)
            assert failure.code == Code.FRAME_TOO_LARGE
            answered = await host.call("bad/echo", {"small": True}, timeout=AMPLE)
            assert answered["content"][0]["text"] == "small"

    asyncio.run(main())


@requirement("mcp:host-dies")
def test_a_server_that_dies_during_a_call_fails_it_at_once_with_its_last_words(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with hosting(tmp_path, DIES) as host:
            failure = await failure_of(host, timeout=AMPLE)
            assert failure.code == Code.CRASHED
            assert failure.detail["exit_code"] == 3
            assert failure.detail["stderr_tail"] == ["out of luck"]

    run(main)


@requirement("mcp:host-orphans")
def test_a_server_that_forks_and_leaves_leaves_nobody_behind(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with hosting(tmp_path, FORKS) as host:
            assert host._runtime is not None
            mark = f"PLUGBAY_HOST={host._runtime.spawner.warden.mark}"
            await host.meet("bad")
            result = await host.attempt("bad/echo", {}, timeout=AMPLE)
            assert result.failure is None or result.failure.code == Code.CRASHED
            await good_meanwhile(host)
            assert await eventually(lambda: len(carrying(mark)) == 1), carrying(mark)
            assert "good.py" in carrying(mark)[0]

    run(main)
