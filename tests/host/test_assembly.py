"""The services of a host, from settings and from plugins."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from plugbay import CallFailed, ConfigInvalid, Host, PlugbayError
from plugbay.host.assembly import broker_for
from plugbay.host.config.sections import BrokerConfig
from plugbay.host.events.bus import Bus
from plugbay.host.journal import Journal
from plugbay.host.services.vectors import VectorQuery, VectorRecord
from plugbay.model.errors import Failure
from tests.support.ainb import write_ainb_plugin
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.requirements import requirement


def test_without_settings_and_state_folder_memory_and_vectors_last_as_long_as_the_host(
    run: Run, tmp_path: Path
) -> None:
    async def main() -> None:
        async with Host([]) as host:
            entry = await host.memory.remember("a", "tea")
            assert await host.memory.recall("a", "tea") == [entry]
            assert host.llm.names() == []
            store = host.vectors.get("embedded")
            assert not isinstance(store, Failure)
            await store.upsert("c", [VectorRecord("1", "x", [1.0, 0.0])])
            assert [match.id for match in await store.search("c", VectorQuery([1.0, 0.0]))] == ["1"]

    run(main)


def test_there_is_a_storage_for_whom_it_may_be_granted_later(run: Run, tmp_path: Path) -> None:
    write_kaged_plugin(tmp_path / "plugins", capabilities=["kaged:storage:read"])

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", state_dir=tmp_path / "state") as host:
            assert host._backends.services.storage is not None

    run(main)


def test_memory_and_vectors_survive_the_host(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "plugbay.toml"
    config.write_text('[memory]\npath = "memory.db"\nvectors = "embedded"\n')

    async def main() -> None:
        async with Host.load(config=config) as host:
            entry = await host.memory.remember("a", "photosynthesising leaves")
        async with Host.load(config=config) as host:
            assert await host.memory.recall("a", "leaves") == [entry]
            assert await host.memory.recall("a", "photosynthetic") == [entry]

    run(main)
    assert {path.name for path in tmp_path.iterdir()} >= {"memory.db", "memory.vectors.db"}


def test_a_memory_that_cannot_be_opened_stops_the_start_and_leaves_nothing_open(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "plugbay.toml"
    config.write_text('[memory]\npath = "memory.db"\n')
    (tmp_path / "memory.db").write_bytes(b"this is no database" * 100)

    async def main() -> None:
        with pytest.raises(PlugbayError, match=r"memory\.db"):
            await Host.load(config=config).start()

    run(main)


def test_a_provider_of_the_operator_comes_before_a_plugins(run: Run, tmp_path: Path) -> None:
    root = write_nexo_plugin(tmp_path, extends={"llm_providers": ["local", "other"]})
    config = tmp_path / "c.toml"
    config.write_text('[llm.providers.local]\nkind = "openai"\nbase_url = "http://127.0.0.1:9/v1"\n')

    async def main() -> None:
        async with Host.load(root, config=config) as host:
            assert host.llm.names() == ["local", "other"]
            assert host.plugins()[0].counters == {"name_taken": 1}

    run(main)


def test_a_provider_whose_key_is_not_in_the_environment_is_a_config_error(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(
        '[llm.providers.local]\nkind = "openai"\nbase_url = "http://127.0.0.1:9/v1"\napi_key_env = "NO_SUCH_KEY_HERE"\n'
    )
    with pytest.raises(ConfigInvalid, match="NO_SUCH_KEY_HERE"):
        Host.load(config=config)


def test_a_plugin_that_may_not_run_takes_no_name_from_one_that_may(run: Run, tmp_path: Path) -> None:
    for plugin_id in ("a", "b"):
        write_nexo_plugin(tmp_path / "plugins", plugin_id, extends={"llm_providers": ["cohere"]})
    config = tmp_path / "c.toml"
    config.write_text("[plugins.a]\nenabled = false\n")

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", config=config) as host:
            assert host.llm.names() == ["cohere"]
            assert all("name_taken" not in status.counters for status in host.plugins())

    run(main)


def test_a_memory_that_lasts_as_long_as_the_host_leaves_no_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plugbay.toml").write_text('[memory]\npath = ":memory:"\nvectors = "embedded"\n')

    async def main() -> None:
        async with Host.load(config="plugbay.toml") as host:
            await host.memory.remember("a", "tea")

    run(main)
    assert [path.name for path in tmp_path.iterdir()] == ["plugbay.toml"]


# Actions that go on to plugins.

INVOKES = """
waiting = {}
def cli_dispatch(params, m):
    waiting["m"] = m
    name, timeout_ms = params["argv"]
    request(7, "host/action/invoke", action=name, payload=b64(b"in"), timeout_ms=int(timeout_ms))
def answered(m):
    said = json.dumps(m.get("result") or m["error"]["code"])
    reply(waiting["m"], {"stdout": b64(said.encode()), "stderr": "", "exit_code": 0})
"""

DOES = """
def action(params, m):
    if params["action"] == "does":
        reply(m, {"payload": b64(unb64(params["payload"]) + b" %d" % params["timeout_ms"])})
    elif params["action"] == "dies":
        os._exit(1)
    elif params["action"] == "fails":
        fail(m, -32601, "method not found")
"""


async def invoked(host: Host, action: str, timeout_ms: int = 5000) -> Any:
    """What the plugin `asks` got for an action: the result, or the code of the error."""
    return json.loads((await host.run_cli("asks", [action, str(timeout_ms)])).stdout)


@requirement("ainb:host-action-forwarded", "ainb:host-action-timeout")
def test_an_action_goes_to_the_plugin_whose_command_lines_have_its_name(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "asks", INVOKES, namespaces=["asks"])
    names = ["does", "dies", "fails", "sleeps"]
    write_ainb_plugin(tmp_path, "p", DOES, namespaces=names, screens=["does"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert await invoked(host, "does") == {"payload": "aW4gNTAwMA=="}
            assert await invoked(host, "sleeps", 100) == -32002
            assert await invoked(host, "fails") == -32603
            assert await invoked(host, "dies") == -32603
            for nobodys in ("p", "p/does", "doe", "asks"):
                assert await invoked(host, nobodys) == -32602
            host.actions.register("does", bytes.upper)
            assert await invoked(host, "does") == {"payload": "SU4="}, "the host's own comes first"

    run(main)


@requirement("ainb:host-action-forwarded")
def test_an_action_goes_to_no_plugin_that_may_not_run(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path / "plugins", "asks", INVOKES, namespaces=["asks"])
    for name in ("a", "b"):
        write_ainb_plugin(tmp_path / "plugins", name, DOES, namespaces=["does"])
    config = tmp_path / "c.toml"

    async def main() -> None:
        for text, answer in (("a", {"payload": "aW4gNTAwMA=="}), ("b", {"payload": "aW4gNTAwMA=="})):
            config.write_text(f"[plugins.{text}]\nenabled = false\n")
            async with Host.load(tmp_path / "plugins", config=config) as host:
                assert await invoked(host, "does") == answer
        config.write_text("[plugins.a]\nenabled = false\n[plugins.b]\nenabled = false\n")
        async with Host.load(tmp_path / "plugins", config=config) as host:
            assert await invoked(host, "does") == -32602

    run(main)


@pytest.mark.parametrize("scheme", ["nats", "tls"])
def test_the_broker_of_a_scheme_is_found_and_not_begun(scheme: str) -> None:
    broker = broker_for(BrokerConfig(url=f"{scheme}://127.0.0.1:4222"), Bus(), Journal())
    assert type(broker).__name__ == "NatsBroker"
    assert (broker.status.joined, broker.status.problem) == (False, "not begun")


def test_an_extra_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("nats", "plugbay.brokers"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(ConfigInvalid, match=r"broker\.url: nats:// needs .*pip install 'plugbay\[nats\]'"):
        broker_for(BrokerConfig(url="nats://127.0.0.1:4222"), Bus(), Journal())


def test_a_scheme_that_nothing_speaks_is_said() -> None:
    settings = BrokerConfig.model_construct(url="amqp://127.0.0.1", topics=[])
    with pytest.raises(ConfigInvalid, match="no installed module supports amqp://"):
        broker_for(settings, Bus(), Journal())


@requirement("host:memory-default")
def test_without_settings_the_memory_is_a_file_in_the_state_folder_which_its_first_use_makes(
    run: Run, tmp_path: Path
) -> None:
    async def main() -> None:
        async with Host([], state_dir=tmp_path / "state") as host:
            assert not (tmp_path / "state" / "memory.db").exists()
            entries = await asyncio.gather(*(host.memory.remember("a", f"tea {number}") for number in range(3)))
        async with Host([], state_dir=tmp_path / "state") as host:
            kept = await host.memory.recall("a", "tea")
            assert {entry.id for entry in kept} == {entry.id for entry in entries}
            assert await host.memory.clear("a") == 3
            assert await host.memory.recall("a", "") == []

    run(main)


@requirement("host:memory-default")
def test_a_default_memory_that_cannot_be_used_fails_its_use_and_not_the_host(run: Run, tmp_path: Path) -> None:
    (tmp_path / "memory.db").write_text("no database, and long enough to be taken for one " * 100)

    async def main() -> None:
        async with Host([], state_dir=tmp_path) as host:
            for _ in range(2):
                with pytest.raises(CallFailed, match="memory database"):
                    await host.memory.recall("a", "tea")

    run(main)
