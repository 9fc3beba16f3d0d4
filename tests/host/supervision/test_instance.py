"""Opening an instance: it is greeted, or a failure explains why not and no process is left."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from plugbay import Host
from plugbay.host.discovery.folders import inspect
from plugbay.host.supervision.binding import Binding
from plugbay.host.supervision.instance import Deadline, Instance, Runtime, open_instance
from plugbay.link.deadlines import Deadlines
from plugbay.model.errors import Code, Failure
from plugbay.process.child import Spawner
from tests.support.ainb import write_ainb_plugin
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement
from tests.support.supervision import CODEC


async def opened(folder: Path, seconds: float = 5, spawner: Spawner | None = None) -> Instance | Failure:
    """Open a instance, close everything, and be sure that nothing is left."""
    spec = inspect(folder).spec
    assert spec is not None
    spawner = spawner or Spawner()
    runtime = Runtime(spawner, Deadlines(asyncio.get_running_loop()), CODEC)
    instance = await open_instance(Binding(spec), runtime, Deadline(seconds))
    if isinstance(instance, Instance):
        instance.kill()
    await spawner.close()
    assert not spawner.children
    return instance


def test_a_good_plugin_is_greeted(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        instance = await opened(write_plugin(tmp_path))
        assert isinstance(instance, Instance)
        assert instance.link.hello is not None
        assert instance.link.hello.hello["plugin_id"] == "p"

    run(main)


def test_an_ainb_plugin_gets_the_pid_of_its_host(run: Run, tmp_path: Path) -> None:
    tell = """
        def init(m):
            open("told.json", "w").write(json.dumps(m["params"]["host"]))
            reply(m, {"name": NAME, "version": "1.0.0"})
    """

    async def main() -> None:
        folder = write_ainb_plugin(tmp_path, "p", tell)
        assert isinstance(await opened(folder), Instance)
        assert json.loads((folder / "told.json").read_text())["pid"] == os.getpid()

    run(main)


def test_the_program_of_a_plugin_finds_the_python_that_runs_the_host(run: Run, tmp_path: Path) -> None:
    body = """
    def cli_dispatch(params, m):
        reply(m, {"stdout": b64(os.environ["PATH"].encode()), "stderr": "", "exit_code": 0})
    """
    write_ainb_plugin(tmp_path, body=body, namespaces=["p"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            path = (await host.run_cli("p", [])).stdout.decode()
            assert path.split(os.pathsep)[0] == os.path.dirname(sys.executable)

    run(main)


def test_a_failed_start_reports_the_exit_and_the_stderr_of_the_process(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        failure = await opened(write_plugin(tmp_path, script="echo no such luck >&2; kill -SEGV $$\n"))
        assert isinstance(failure, Failure)
        assert (failure.code, failure.plugin) == (Code.CRASHED, "p")
        assert failure.detail["exit"] == "killed by SIGSEGV"
        assert failure.detail["stderr_tail"] == ["no such luck"]
        assert failure.detail["cause"]

    run(main)


def test_a_command_that_is_gone_is_a_launch_failure_with_a_hint(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        folder = write_plugin(tmp_path)
        (folder / "run.sh").chmod(0o644)
        failure = await opened(folder)
        assert isinstance(failure, Failure)
        assert failure.code == Code.LAUNCH_FAILED
        assert "chmod" in failure.detail["hint"]

    run(main)


def test_the_calls_own_time_bounds_the_wait_for_a_slot_too(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        def slow(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
            import time

            time.sleep(0.3)
            return subprocess.Popen(*arguments, **options)

        failure = await opened(write_plugin(tmp_path), 0.05, Spawner(popen=slow))
        assert isinstance(failure, Failure)
        assert failure.code == Code.TIMEOUT

    run(main)


@requirement("kaged:host-shutdown-budget")
def test_a_plugin_that_answers_shutdown_at_once_has_the_rest_of_its_time_to_clean_up(run: Run, tmp_path: Path) -> None:
    clean = 'open(os.environ["KAGED_CONFIG_ROOT"] + "/clean", "w").close()'
    body = f"def shutdown(m):\n    reply(m, {{}})\n    time.sleep(2)\n    {clean}\n    sys.exit(0)\n"
    root = write_kaged_plugin(tmp_path, body=body, shutdown_timeout_sec=10)

    async def main() -> None:
        async with Host.load(root, state_dir=tmp_path / "state") as host:
            await host.call("echo", {})
        assert (tmp_path / "state" / "plugins" / "p" / "clean").exists()

    run(main)
