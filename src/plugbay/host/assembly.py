"""Puts the services of one host together: from plugbay.toml, and from what its plugins offer.

Owns which names are taken by whom (first come, first served; the operator before any plugin) and what is opened and
closed with the host.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from plugbay.host.calls import Calls
from plugbay.host.catalog import Entry
from plugbay.host.config import Config, MemoryConfig
from plugbay.host.plugin_backends import Channels, PluginChannel, PluginModel, PluginVectors
from plugbay.host.reception import Services
from plugbay.host.services.actions import Actions, Forward
from plugbay.host.services.agent_memory import AgentMemory
from plugbay.host.services.database import IN_MEMORY
from plugbay.host.services.embedding import HashingEmbedder
from plugbay.host.services.memory import LongTermMemory
from plugbay.host.services.network import Fetcher
from plugbay.host.services.recall import EMBEDDED, VectorRecall
from plugbay.host.services.storage import PluginStorage
from plugbay.host.services.vector_store import EmbeddedVectors
from plugbay.host.services.vectors import VectorRegistry
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.operations import InvokeAction

STORAGE_FILE = "storage.db"
"""Below the state directory: what plugins keep through the host."""

OPERATOR = "plugbay.toml"
"""Who owns a name that no plugin has brought."""


@dataclass(slots=True)
class Backends:
    """Every service of a host."""

    services: Services
    embedded: EmbeddedVectors
    vectors: VectorRegistry = field(default_factory=VectorRegistry)
    channels: Channels = field(default_factory=Channels)

    async def open(self) -> None:
        """Open what lives on disk; raises `PlugbayError` when that cannot be used."""
        try:
            for store in self._stores():
                await store.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        self.services.files.close()
        await self.services.llm.close()
        for store in self._stores():
            await store.close()

    def _stores(self) -> list[AgentMemory | PluginStorage | EmbeddedVectors]:
        stores = (self.services.memory, self.services.storage, self.embedded)
        return [store for store in stores if store is not None]


def assemble(config: Config, calls: Calls, state_dir: Path | None = None) -> Backends:
    """The services for these settings and these plugins; nothing is opened yet."""
    services = Services(network=Fetcher(config.network.allow_private), actions=Actions(_to_plugins(calls)))
    embedded = EmbeddedVectors(_vectors_path(config))
    backends = Backends(services, embedded)
    backends.vectors.register(EMBEDDED, embedded, OPERATOR)
    if config.memory is not None:
        services.memory = _memory(config.memory, backends)
    if state_dir is not None and any(map(_wants_storage, calls.catalog.entries())):  # a grant may come later
        services.storage = PluginStorage(state_dir / STORAGE_FILE)
    for name, settings in config.llm.providers.items():
        services.llm.register(name, settings.build(name, os.environ), OPERATOR)
    if config.llm.sampling is not None:
        services.llm.usual = (config.llm.sampling.provider, config.llm.sampling.model)
    _offer(calls, backends)
    return backends


def _wants_storage(entry: Entry) -> bool:
    return any(access.kind in ("storage_read", "storage_write") for access in entry.spec.access)


def _vectors_path(config: Config) -> str:
    """Beside the memory; where that is not configured, vectors last as long as the host."""
    if config.memory is None or config.memory.path == IN_MEMORY:
        return IN_MEMORY
    return str(Path(config.memory.path).with_suffix(".vectors.db"))


def _memory(settings: MemoryConfig, backends: Backends) -> AgentMemory:
    likeness = None
    if settings.vectors is not None:
        likeness = VectorRecall(backends.vectors, HashingEmbedder(), settings.vectors)

    def degraded(failure: Failure) -> None:
        backends.services.journal.note("host", "recall_degraded", failure.message)

    return AgentMemory(LongTermMemory(settings.path), likeness, degraded)


def _offer(calls: Calls, backends: Backends) -> None:
    """Register what plugins offer; who comes second for a name is told so and left out.

    A plugin that may not run takes no name from one that may.
    """
    for entry in filter(calls.admits, calls.catalog.entries()):
        owner, name = entry.spec.id, entry.export.name
        refusal: str | None = None
        if entry.export.kind == "llm_provider":
            refusal = backends.services.llm.register(name, PluginModel(calls, owner, name), owner)
        elif entry.export.kind == "vector_backend":
            refusal = backends.vectors.register(name, PluginVectors(calls, owner, name), owner)
        elif entry.export.kind == "channel":
            refusal = backends.channels.register(name, PluginChannel(calls, owner, name), owner)
        if refusal is not None:
            backends.services.journal.note(owner, "name_taken", refusal)


def _to_plugins(calls: Calls) -> Forward:
    """An action that is not the host's own goes to the plugin whose command lines have exactly its name."""

    async def forward(caller: str, action: str, data: bytes, seconds: float) -> bytes | None:
        offered = calls.catalog.of_kind("cli_namespace")
        named = {entry.spec.id: entry for entry in offered if entry.export.name == action}
        entry = next((entry for owner, entry in named.items() if owner != caller and calls.admits(entry)), None)
        if entry is None:
            return None
        op = InvokeAction(action, data, round(seconds * 1000))
        result = await calls.attempt(entry.full_name, lambda _: op, seconds, kind="cli_namespace")
        if result.failure is not None:
            raise CallFailed(_second_hand(result.failure))
        return bytes(result.output)

    return forward


def _second_hand(failure: Failure) -> Failure:
    """What the plugin that asked is told: its own request was in order, but the one it went to has failed."""
    code = Code.TIMEOUT if failure.code == Code.TIMEOUT else Code.PLUGIN_ERROR
    return Failure(code, f"{failure.plugin}: {failure.message}", plugin=failure.plugin)
