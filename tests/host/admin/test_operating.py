"""Operations on a running host."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.admin import operating
from plugbay.host.catalog.approvals import Approvals
from plugbay.host.config import config
from plugbay.host.host import Host
from plugbay.model.errors import CallFailed, Code
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run
from tests.support.mcp_servers import write_child, write_server
from tests.support.nexo import write_nexo_plugin
from tests.support.openings import FLAG
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
            assert host.is_running
        assert not host.is_running

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


def test_sections_for_a_new_host_are_reported_and_plugin_settings_applied(tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path, "p", capabilities=["tool.execute"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert host.refusal("p") is not None
            other = config.parse(
                '[llm.providers.x]\nkind = "openai"\nbase_url = "http://127.0.0.1:1"\n'
                '[plugins.p]\ngrants = ["tool.execute"]\n'
            )
            assert await operating.apply(host, other) == operating.Applied(("p",), ("llm",))
            assert host.refusal("p") is None
            await host.reload("p")
            assert await host.call("p/t", {}) == {}
            assert (await operating.apply(host, other)).plugins == ()

    run(main)


def declared(child: Path, *more: str) -> str:
    return f"[mcp.srv]\ncommand = {json.dumps([sys.executable, FLAG, str(child), *more])}\n"


def test_servers_of_another_plugbay_toml_come_change_and_go(tmp_path: Path, run: Run) -> None:
    child = write_child(tmp_path)

    async def main() -> None:
        async with Host([], state_dir=tmp_path / "state", unconfined=True) as host:
            applied = await operating.apply(host, config.parse(declared(child)))
            assert (applied.added, applied.removed, applied.restart) == (("srv",), (), ())
            assert (await host.attempt("srv/echo", {})).failure is not None, "it is not approved yet"
            await operating.approve(host, await operating.inspect(host, "srv"))
            await host.reload("srv")
            assert (await host.call("srv/echo", {"a": 1}))["content"][0]["text"] == '{"a": 1}'
            applied = await operating.apply(host, config.parse(declared(child) + "[plugins.srv.timeouts]\ncall = 20\n"))
            assert (applied.plugins, applied.added, applied.removed) == (("srv",), (), ())
            applied = await operating.apply(host, config.parse(declared(child, "other")))
            assert (applied.plugins, applied.added, applied.removed) == ((), ("srv",), ("srv",))
            assert (await host.attempt("srv/echo", {})).failure is not None, "another command is not approved"
            applied = await operating.apply(host, config.parse(""))
            assert (applied.added, applied.removed) == ((), ("srv",))
            assert host.plugins() == [] and host.found == []

    run(main)


def test_a_server_with_the_name_of_a_plugin_is_refused_and_the_plugin_stays(tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path, "srv")

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            applied = await operating.apply(host, config.parse('[mcp.srv]\ncommand = ["/bin/true"]\n'))
            assert (applied.added, applied.removed) == ((), ())
            assert [problem.code for item in host.problems for problem in item.errors] == ["duplicate_id"]
            assert await host.call("srv/t", {}) == {}
            await operating.apply(host, config.parse(""))
            assert host.problems == [] and await host.call("srv/t", {}) == {}

    run(main)


OFFERS = {"channels": ["post"], "llm_providers": ["toy"], "memory_backends": ["shelf"]}


def test_what_a_plugin_offers_by_name_is_there_while_it_may_run(tmp_path: Path, run: Run) -> None:
    wants = '[plugin.requires]\nnexo_capabilities = ["memory.recall"]\n'
    write_nexo_plugin(tmp_path, "p", extends=OFFERS, channels=["post"], more=wants)
    write_nexo_plugin(tmp_path, "q", extends={"channels": ["post"]}, channels=["post"])

    def names(host: Host) -> tuple[list[str], list[str], list[str]]:
        return host.channels.kinds(), host.llm.names(), [name for name in host.vectors.names() if name != "embedded"]

    async def main() -> None:
        host = Host.load(tmp_path, eager=False)
        assert names(host) == (["post"], [], [])
        host.llm.register("mine", host.llm, "the application")  # type: ignore[arg-type]
        granted = config.parse('[plugins.p]\ngrants = ["memory.recall"]\n')
        await operating.apply(host, granted)
        assert names(host) == (["post"], ["mine", "toy"], ["shelf"])
        assert host.journal.counts("p") == {"name_taken": 1}, "who has a name keeps it"
        await operating.apply(host, granted)
        assert host.journal.counts("p") == {"name_taken": 1}, "nothing is told twice"
        await operating.apply(
            host, config.parse('[plugins.p]\ngrants = ["memory.recall"]\n[plugins.q]\nenabled = false\n')
        )
        assert names(host)[0] == ["post"] and host.journal.counts("q") == {}
        await operating.apply(host, config.parse("[plugins.p]\nenabled = false\n"))
        assert names(host) == (["post"], ["mine"], [])

    run(main)


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
            assert "now holds q" in await refusal(host)
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
            with pytest.raises(CallFailed, match="now holds p"):
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


MORE = 'TOOLS.append({"name": "more", "description": "New.", "inputSchema": {"type": "object"}})'


def loaded(folder: Path, **options: Any) -> Host:
    return Host.load(folder / "plugins", state_dir=folder / "state", **options)


def test_what_was_seen_is_approved_and_answers_at_once(tmp_path: Path, run: Run) -> None:
    write_server(tmp_path / "plugins", "srv")

    async def main() -> None:
        async with loaded(tmp_path) as host:
            assert host.refusal("srv") is not None
            seen = await operating.inspect(host, "srv")
            assert [(part, each["name"]) for part, each in seen.definitions] == [("tools", "echo")]
            assert not seen.approved_before and seen.to_json()["definitions"]["tools"][0]["name"] == "echo"
            assert host.refusal("srv") is not None, "a look approves nothing"
            assert (await operating.inspect(host, "srv")).digest == seen.digest, "the time is not part of it"
            await operating.approve(host, seen)
            await host.reload("srv")
            assert host.refusal("srv") is None
            assert "echo" in str(host.exports())
            assert (await host.attempt("srv/echo", {"a": 1})).failure is None

    run(main)


def test_a_changed_offer_has_another_digest_and_its_changes_are_reported(tmp_path: Path, run: Run) -> None:
    write_server(tmp_path / "plugins", "srv")

    async def main() -> None:
        async with loaded(tmp_path) as host:
            first = await operating.inspect(host, "srv")
            await operating.approve(host, first)
            write_server(tmp_path / "plugins", "srv", MORE)
            await operating.reload(host, "srv")
            await host.meet("srv")
            assert host.plugins()[0].disabled == ("more",)
            second = await operating.inspect(host, "srv")
            assert second.digest != first.digest and second.approved_before
            assert [change.word for change in second.changes] == ["new"]
            await operating.approve(host, second)
            await host.reload("srv")
            assert (await host.attempt("srv/more", {})).failure is None
            assert host.plugins()[0].disabled == ()

    run(main)


def test_a_reload_applies_an_approval_of_another_process(tmp_path: Path, run: Run) -> None:
    write_server(tmp_path / "plugins", "srv")

    async def main() -> None:
        async with loaded(tmp_path) as host:
            with pytest.raises(CallFailed, match="approved"):
                await operating.restart(host, "srv")
            Approvals(tmp_path / "state").save("srv", (await operating.inspect(host, "srv")).candidate)
            await operating.reload(host, "srv")
            assert (await host.attempt("srv/echo", {})).failure is None

    run(main)


def test_a_server_that_does_not_start_says_why(tmp_path: Path, run: Run) -> None:
    write_server(tmp_path / "plugins", "srv", "sys.exit(3)")

    async def main() -> None:
        async with loaded(tmp_path) as host:
            with pytest.raises(CallFailed):
                await operating.inspect(host, "srv")

    run(main)


BROKER = """\
[broker]
url = "nats://127.0.0.1:1"
topics = ["a.>"]
token_env = "TOKEN_OF_THE_BROKER"
"""


def test_a_look_does_not_join_the_hosts_of_other_machines(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_server(tmp_path / "plugins", "srv")
    (tmp_path / "plugbay.toml").write_text(BROKER)
    monkeypatch.setenv("TOKEN_OF_THE_BROKER", "secret")

    async def main() -> None:
        async with loaded(tmp_path, config=tmp_path / "plugbay.toml") as host:
            assert host.broker is not None
            monkeypatch.delenv("TOKEN_OF_THE_BROKER")  # without it nobody is joined, and that would be an error
            assert (await operating.inspect(host, "srv")).definitions

    run(main)
