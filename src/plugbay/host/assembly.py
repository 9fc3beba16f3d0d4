"""Assembles the services of one host from plugbay.toml and from the exports of its plugins.

Names are first come, first served, and the operator comes before any plugin. Opens and closes the stores of a host.
`broker_for` finds the broker for a URL by its scheme, among the installed entry points; the host knows only its port.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from plugbay.host.calls.calls import Calls
from plugbay.host.config.config import Config, MemoryConfig
from plugbay.host.config.sections import BrokerConfig
from plugbay.host.disk.sqlite_files import IN_MEMORY
from plugbay.host.events.bus import Bus
from plugbay.host.inbound.handler import Services
from plugbay.host.journal import Journal
from plugbay.host.ports import Broker
from plugbay.host.providers.plugin_backends import Channels, PluginChannel, PluginModel, PluginVectors
from plugbay.host.request import CallRequest
from plugbay.host.services.actions import Actions, Forward
from plugbay.host.services.memory import EMBEDDED, MEMORY_FILE, AgentMemory, LongTermMemory, TextMemory, VectorRecall
from plugbay.host.services.storage import PluginStorage, Storage
from plugbay.host.services.vectors import EmbeddedVectors, HashingEmbedder, VectorBackend, VectorRegistry
from plugbay.model.errors import CallFailed, Code, ConfigInvalid, Failure, Problem
from plugbay.model.operations import InvokeAction
from plugbay.model.spec import PluginSpec

STORAGE_FILE = "storage.db"
"""Below the state directory: the storage of plugins."""

REGISTERED = frozenset({"llm_provider", "vector_backend", "channel"})
"""Kinds of exports that are registered by name, without the id of their plugin."""

OPERATOR = "plugbay.toml"
"""The owner of names that the configuration registers."""


class Stores(msgspec.Struct, frozen=True):
    """Stores of a host that are not files of its own."""

    storage: Storage
    memory: TextMemory
    vectors: VectorBackend


class Backends(msgspec.Struct):
    """Every service of a host."""

    services: Services
    embedded: EmbeddedVectors | None
    """The vectors in a file; None: they are elsewhere."""
    vectors: VectorRegistry = msgspec.field(default_factory=VectorRegistry)
    channels: Channels = msgspec.field(default_factory=Channels)
    broker: Broker | None = None
    """Joins the bus with those of other hosts; None when not configured."""
    storage_file: Path | None = None
    """The file of the plugins' storage; None: they have none."""
    registered: dict[tuple[str, str], str] = msgspec.field(default_factory=dict)
    """By kind and name: the plugin that owns it."""
    refusals: set[tuple[str, str]] = msgspec.field(default_factory=set)
    """Plugins whose name was taken already, and the reported reason."""

    async def open(self) -> None:
        """Open what lives on disk; raises `PlugbayError` when that cannot be used."""
        try:
            for store in self._stores():
                await store.open()
            if self.broker is not None:
                self.broker.begin()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close everything, even if one of them fails or the task is cancelled."""
        async with AsyncExitStack() as closing:
            for store in self._stores():
                closing.push_async_callback(store.close)
            closing.push_async_callback(self.services.llm.close)
            closing.callback(self.services.files.close)
            if self.broker is not None:
                closing.push_async_callback(self.broker.stop)

    def register(self, calls: Calls, kind: str, name: str, owner: str) -> str | None:
        """Register an export by name; returns the reason when the name is taken."""
        if kind == "llm_provider":
            refusal = self.services.llm.register(name, PluginModel(calls, owner, name), owner)
        elif kind == "vector_backend":
            refusal = self.vectors.register(name, PluginVectors(calls, owner, name), owner)
        else:
            refusal = self.channels.register(name, PluginChannel(calls, owner, name), owner)
        if refusal is None:
            self.registered[kind, name] = owner
        return refusal

    def withdraw(self, kind: str, name: str) -> None:
        """Remove a name of a plugin."""
        del self.registered[kind, name]
        registries = {"llm_provider": self.services.llm.withdraw, "vector_backend": self.vectors.withdraw}
        registries.get(kind, self.channels.withdraw)(name)

    def use(self, stores: Stores) -> None:
        """Keep storage, memory and vectors elsewhere than in files."""
        self.services.storage = stores.storage
        self.embedded = None
        self.vectors.withdraw(EMBEDDED)
        self.vectors.register(EMBEDDED, stores.vectors, OPERATOR)
        if self.services.memory is not None:
            self.services.memory.text = stores.memory

    async def open_storage(self, spec: PluginSpec) -> None:
        """Open the storage for a plugin that was added while the host runs; raises `PlugbayError`."""
        if self.storage_file is None or self.services.storage is not None or not _wants_storage(spec):
            return
        storage = PluginStorage(self.storage_file)
        await storage.open()
        self.services.storage = storage

    def _stores(self) -> list[AgentMemory | Storage | EmbeddedVectors]:
        stores = (self.services.memory, self.services.storage, self.embedded)
        return [store for store in stores if store is not None]


def assemble(config: Config, calls: Calls, state_dir: Path | None = None) -> Backends:
    """The services for these settings and these plugins; nothing is opened yet."""
    services = Services(actions=Actions(_forward_to_plugins(calls)))
    _register_actions(services.actions)
    embedded = EmbeddedVectors(_vectors_path(config))
    backends = Backends(services, embedded, storage_file=state_dir and state_dir / STORAGE_FILE)
    backends.vectors.register(EMBEDDED, embedded, OPERATOR)
    services.memory = default_memory(state_dir) if config.memory is None else _memory(config.memory, backends)
    if config.broker is not None:
        backends.broker = broker_for(config.broker, services.bus, services.journal)
    specs = (entry.spec for entry in calls.catalog.entries())
    if backends.storage_file is not None and any(map(_wants_storage, specs)):  # a grant may come later
        services.storage = PluginStorage(backends.storage_file)
    for name, settings in config.llm.providers.items():
        services.llm.register(name, settings.build(name, os.environ), OPERATOR)
    if config.llm.sampling is not None:
        services.llm.usual = (config.llm.sampling.provider, config.llm.sampling.model)
    register_exports(calls, backends)
    return backends


def _register_actions(actions: Actions) -> None:
    """The actions that every host has. They need no grant, so they tell nothing of the system or of other plugins."""

    async def info(_: bytes) -> bytes:
        from importlib.metadata import version  # takes 15 ms, only for plugins that ask

        return msgspec.json.encode({"kind": "plugbay", "version": version("plugbay")})

    async def names(_: bytes) -> bytes:
        return msgspec.json.encode(actions.names())

    async def echo(data: bytes) -> bytes:
        return data

    for name, handler in (("host.info", info), ("host.actions", names), ("host.echo", echo)):
        actions.register(name, handler)


def _wants_storage(spec: PluginSpec) -> bool:
    return any(access.kind in ("storage_read", "storage_write") for access in spec.access)


def _vectors_path(config: Config) -> str:
    """A file beside the memory; without a configured memory, vectors last as long as the host."""
    if config.memory is None or config.memory.path == IN_MEMORY:
        return IN_MEMORY
    return str(Path(config.memory.path).with_suffix(".vectors.db"))


def default_memory(state_dir: Path | None) -> AgentMemory:
    """The memory without settings: a file in the state folder, or one that ends with a host without such a folder."""
    return AgentMemory(LongTermMemory(IN_MEMORY if state_dir is None else state_dir / MEMORY_FILE, on_demand=True))


def _memory(settings: MemoryConfig, backends: Backends) -> AgentMemory:
    vectors = None
    if settings.vectors is not None:
        vectors = VectorRecall(backends.vectors, HashingEmbedder(), settings.vectors)

    def degraded(failure: Failure) -> None:
        backends.services.journal.note("host", "recall_degraded", failure.message)

    return AgentMemory(LongTermMemory(settings.path), vectors, degraded)


def register_exports(calls: Calls, backends: Backends) -> None:
    """Register models, vector backends and channels of plugins by name; the journal notes names that are taken.

    Only plugins that may run get names. A plugin that may no longer run loses its names; all others keep theirs.
    """
    entries = [entry for entry in calls.catalog.entries() if entry.export.kind in REGISTERED and calls.admits(entry)]
    wanted = [(entry.export.kind, entry.export.name, entry.spec.id) for entry in entries]
    for (kind, name), owner in list(backends.registered.items()):
        if (kind, name, owner) not in wanted:
            backends.withdraw(kind, name)
    reported, backends.refusals = backends.refusals, set()
    for kind, name, owner in wanted:
        refusal = (
            None if backends.registered.get((kind, name)) == owner else backends.register(calls, kind, name, owner)
        )
        if refusal is not None:
            backends.refusals.add((owner, refusal))
    for owner, refusal in sorted(backends.refusals - reported):
        backends.services.journal.note(owner, "name_taken", refusal)


def _forward_to_plugins(calls: Calls) -> Forward:
    """An action that the host does not have goes to the plugin whose command line has exactly its name."""

    async def forward(caller: str, action: str, data: bytes, seconds: float) -> bytes | None:
        entries = calls.catalog.of_kind("cli_namespace")
        named = {entry.spec.id: entry for entry in entries if entry.export.name == action}
        entry = next((entry for owner, entry in named.items() if owner != caller and calls.admits(entry)), None)
        if entry is None:
            return None
        op = InvokeAction(action, data, round(seconds * 1000))
        request = CallRequest(entry.full_name, kind="cli_namespace", timeout=seconds, make_operation=lambda _: op)
        result = await calls.run(request)
        if result.failure is not None:
            raise CallFailed(_indirect_failure(result.failure))
        return bytes(result.output)

    return forward


def _indirect_failure(failure: Failure) -> Failure:
    """The failure for the calling plugin: its own request was valid, but the plugin that it went to has failed."""
    code = Code.TIMEOUT if failure.code == Code.TIMEOUT else Code.PLUGIN_ERROR
    return Failure(code, f"{failure.plugin}: {failure.message}", plugin=failure.plugin)


BROKER_GROUP = "plugbay.brokers"
"""The name of an entry is a URL scheme; it makes a `Broker` of settings, bus, journal and environment."""


def broker_for(settings: BrokerConfig, bus: Bus, journal: Journal, source: str = "plugbay.toml") -> Broker:
    """The broker of these settings, not started; raises `ConfigInvalid` when it is not installed."""
    from importlib.metadata import entry_points  # takes 15 ms, only for hosts with a broker

    scheme = urlsplit(settings.url).scheme
    for entry in entry_points(group=BROKER_GROUP, name=scheme):
        try:
            make = entry.load()
        except ModuleNotFoundError as error:
            text = f"{scheme}:// needs the module {error.name}, which is not installed: pip install 'plugbay[nats]'"
            raise ConfigInvalid(source, [Problem("missing_extra", "broker.url", text)]) from None
        broker: Broker = make(settings, bus, journal, os.environ)
        return broker
    text = f"no installed module supports {scheme}://; reinstall plugbay: pip install 'plugbay[nats]'"
    raise ConfigInvalid(source, [Problem("missing_broker", "broker.url", text)])
