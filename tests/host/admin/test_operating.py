"""What an operator does to a host that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.host.admin import operating
from plugbay.host.config import config
from plugbay.host.host import Host
from plugbay.model.errors import CallFailed, Code
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.plugins import write_plugin


def test_a_plugin_that_stays_is_stopped_started_and_restarted_as_another_process(tmp_path: Path, run: Run) -> None:
    write_kaged_plugin(tmp_path, "notes")

    async def main() -> None:
        async with Host.load(tmp_path, eager=False, unconfined=True) as host:
            await operating.start(host, "notes")
            first = host.plugins()[0]
            assert first.state == "running" and first.pid is not None
            await operating.start(host, "notes")
            assert host.plugins()[0].pid == first.pid, "it runs already"
            await operating.stop(host, "notes")
            assert (host.plugins()[0].state, host.plugins()[0].pid) == ("stopped", None)
            await operating.restart(host, "notes")
            assert host.plugins()[0].state == "running" and host.plugins()[0].pid != first.pid
            assert operating.is_running(host)
        assert not operating.is_running(host)

    run(main)


def test_a_plugin_that_does_not_start_says_why(tmp_path: Path, run: Run) -> None:
    write_kaged_plugin(tmp_path, "notes", command=["./missing"])

    async def main() -> None:
        async with Host.load(tmp_path, eager=False, unconfined=True) as host:
            with pytest.raises(CallFailed) as raised:
                await operating.start(host, "notes")
            assert raised.value.code == Code.LAUNCH_FAILED
            with pytest.raises(CallFailed) as unknown:
                await operating.stop(host, "nobody")
            assert unknown.value.code == Code.NOT_FOUND

    run(main)


def test_what_a_new_host_would_read_is_told_and_what_is_about_plugins_is_taken_over(tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path, "p", capabilities=["tool.execute"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert operating.refusal(host, "p") is not None
            other = config.parse(
                '[llm.providers.x]\nkind = "openai"\nbase_url = "http://127.0.0.1:1"\n'
                '[plugins.p]\ngrants = ["tool.execute"]\n'
            )
            assert operating.apply(host, other) == operating.Applied(("p",), ("llm",))
            assert operating.refusal(host, "p") is None
            await host.reload("p")
            assert await host.call("p/t", {}) == {}
            assert operating.apply(host, other).plugins == ()

    run(main)


OFFERS = {"channels": ["post"], "llm_providers": ["toy"], "memory_backends": ["shelf"]}


def test_what_a_plugin_offers_by_name_is_there_while_it_may_run(tmp_path: Path, run: Run) -> None:
    wants = '[plugin.requires]\nnexo_capabilities = ["mail"]\n'
    write_nexo_plugin(tmp_path, "p", extends=OFFERS, channels=["post"], more=wants)
    write_nexo_plugin(tmp_path, "q", extends={"channels": ["post"]}, channels=["post"])

    def names(host: Host) -> tuple[list[str], list[str], list[str]]:
        return host.channels.kinds(), host.llm.names(), [name for name in host.vectors.names() if name != "embedded"]

    async def main() -> None:
        host = Host.load(tmp_path, eager=False)
        assert names(host) == (["post"], [], [])
        host.llm.register("mine", host.llm, "the application")  # type: ignore[arg-type]
        granted = config.parse('[plugins.p]\ngrants = ["mail"]\n')
        operating.apply(host, granted)
        assert names(host) == (["post"], ["mine", "toy"], ["shelf"])
        assert host.journal.counts("p") == {"name_taken": 1}, "who has a name keeps it"
        operating.apply(host, granted)
        assert host.journal.counts("p") == {"name_taken": 1}, "nothing is told twice"
        operating.apply(host, config.parse('[plugins.p]\ngrants = ["mail"]\n[plugins.q]\nenabled = false\n'))
        assert names(host)[0] == ["post"] and host.journal.counts("q") == {}
        operating.apply(host, config.parse("[plugins.p]\nenabled = false\n"))
        assert names(host) == (["post"], ["mine"], [])

    run(main)
