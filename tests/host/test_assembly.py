"""The services of a host, from settings and from plugins."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay import ConfigInvalid, Host, PlugbayError
from plugbay.host.services.vectors import VectorQuery, VectorRecord
from plugbay.model.errors import Failure
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin


def test_without_settings_there_is_no_memory_and_vectors_last_as_long_as_the_host(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with Host([]) as host:
            assert host.memory is None
            assert host.llm.names() == []
            store = host.vectors.get("embedded")
            assert not isinstance(store, Failure)
            await store.upsert("c", [VectorRecord("1", "x", [1.0, 0.0])])
            assert [match.id for match in await store.search("c", VectorQuery([1.0, 0.0]))] == ["1"]

    run(main)


def test_memory_and_vectors_survive_the_host(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "plugbay.toml"
    config.write_text('[memory]\npath = "memory.db"\nvectors = "embedded"\n')

    async def main() -> None:
        async with Host.load(config=config) as host:
            assert host.memory is not None
            entry = await host.memory.remember("a", "photosynthesising leaves")
        async with Host.load(config=config) as host:
            assert host.memory is not None
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
            assert host.memory is not None
            await host.memory.remember("a", "tea")

    run(main)
    assert [path.name for path in tmp_path.iterdir()] == ["plugbay.toml"]
