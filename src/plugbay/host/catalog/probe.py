"""`Probe`: starts plugins whose exports are not known yet, because one of them may have a requested name.

A started plugin declares its exports in its greeting; `runtime_exports` evaluates them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from plugbay.host.catalog.catalog import Catalog
from plugbay.host.supervision.instance import Deadline
from plugbay.host.supervision.supervisor import Supervisor
from plugbay.model.errors import Code, Failure
from plugbay.model.ids import full_name


class Probe:
    """Learns the exports of plugins by starting them."""

    def __init__(
        self,
        catalog: Catalog,
        supervisors: Callable[[], Mapping[str, Supervisor]],
        unknown: Callable[[], Mapping[str, Failure | None]],
    ) -> None:
        """`unknown` returns the plugins whose exports are not known now, each with why it may not run, or None."""
        self._catalog = catalog
        self._supervisors = supervisors
        self._unknown = unknown

    async def find(self, name: str, timeout: float | None) -> Failure | None:
        """Start plugins that may have `name` until one has it. A `Failure` when the only candidate cannot start."""
        unknown = self._unknown()
        owners = [plugin_id for plugin_id in unknown if name.startswith(full_name(plugin_id, ""))]
        if not owners and any(name.startswith(full_name(plugin_id, "")) for plugin_id in self._known(unknown)):
            return None
        refusals = [why for plugin_id in owners or unknown if (why := unknown[plugin_id]) is not None]
        ids = [plugin_id for plugin_id in owners or unknown if unknown[plugin_id] is None]
        tasks = self._start(ids, timeout)
        try:
            for done in asyncio.as_completed(tasks):
                await done
                if not isinstance(self._catalog.resolve(name), Failure):
                    return None
        finally:
            await _cancel(tasks)
        failures = refusals + [failure for task in tasks if (failure := task.result()) is not None]
        if failures and (owners or not self._catalog.named()):
            return failures[0]
        return self._not_found(name, failures)

    def _known(self, unknown: Mapping[str, Failure | None]) -> Iterable[str]:
        """Plugins with known exports: a full name with their id cannot belong to another plugin."""
        return self._supervisors().keys() - unknown.keys()

    def _not_found(self, name: str, failures: list[Failure]) -> Failure | None:
        """Not found, with a hint at the plugins that may have the name but could not be started."""
        missing = self._catalog.resolve(name)
        if not failures or not isinstance(missing, Failure):
            return None
        failed = "; ".join(f"{failure.plugin}: {failure.message}" for failure in failures)
        return missing.with_detail(hint=f"plugins that could not be started may offer it: {failed}")

    async def probe(self, names: Sequence[str], timeout: float | None) -> dict[str, Failure]:
        """Start these plugins, or all unknown ones; returns the failures. Plugins that may not run are not started."""
        unknown, running = self._unknown(), self._supervisors()
        wanted = dict.fromkeys(names) or [plugin_id for plugin_id, refusal in unknown.items() if refusal is None]
        refused = {name: why for name in wanted if (why := _refusal(name, unknown, running)) is not None}
        ids = [name for name in wanted if name not in refused]
        tasks = self._start(ids, timeout)
        try:
            results = await asyncio.gather(*tasks)
        finally:
            await _cancel(tasks)
        return refused | {name: failure for name, failure in zip(ids, results, strict=True) if failure is not None}

    def _start(self, ids: Iterable[str], timeout: float | None) -> list[asyncio.Task[Failure | None]]:
        found = self._supervisors()
        loop = asyncio.get_running_loop()
        return [loop.create_task(_greet(found[each], timeout)) for each in ids if each in found]


def _refusal(name: str, unknown: Mapping[str, Failure | None], running: Mapping[str, Supervisor]) -> Failure | None:
    if name not in running:
        return Failure(Code.NOT_FOUND, f"there is no running plugin {name!r}", plugin=name)
    return unknown.get(name)


async def _greet(supervisor: Supervisor, timeout: float | None) -> Failure | None:
    """Start the plugin and wait for its greeting; returns the failure, if any."""
    times = supervisor.binding.spec.timeouts
    lease = await supervisor.lease(Deadline(times.launch + times.handshake if timeout is None else timeout))
    if isinstance(lease, Failure):
        return lease
    lease.release()
    return None


async def _cancel(tasks: Iterable[asyncio.Task[Failure | None]]) -> None:
    """Stop waiting; plugins that were started keep running."""
    waiting = [task for task in tasks if not task.done()]
    for task in waiting:
        task.cancel()
    if waiting:
        await asyncio.wait(waiting)
