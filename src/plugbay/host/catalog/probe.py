"""`Strangers`: plugins that may run, and of which nobody knows yet what they offer. Gets to know them when it matters.

A name that nobody here has may be theirs: they are started and greeted, and have told their exports then. Refuses to
know what they tell and how it is judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from plugbay.host.catalog.catalog import Catalog
from plugbay.host.supervision.instance import Deadline
from plugbay.host.supervision.supervisor import Supervisor
from plugbay.model.errors import Code, Failure
from plugbay.model.ids import full_name


class Strangers:
    """Who is not known yet, and how that changes."""

    def __init__(
        self,
        catalog: Catalog,
        supervisors: Callable[[], Mapping[str, Supervisor]],
        unknown: Callable[[], Mapping[str, Failure | None]],
    ) -> None:
        """`unknown` lists who is not known yet, whenever it is asked, and why each may not run; None: it may."""
        self._catalog = catalog
        self._supervisors = supervisors
        self._unknown = unknown

    async def look_for(self, name: str, timeout: float | None) -> Failure | None:
        """Get to know who may offer `name`, until somebody does. A `Failure` when the one that must have it cannot."""
        unknown = self._unknown()
        owners = [plugin_id for plugin_id in unknown if name.startswith(full_name(plugin_id, ""))]
        if not owners and any(name.startswith(full_name(plugin_id, "")) for plugin_id in self._known(unknown)):
            return None
        refusals = [why for plugin_id in owners or unknown if (why := unknown[plugin_id]) is not None]
        ids = [plugin_id for plugin_id in owners or unknown if unknown[plugin_id] is None]
        tasks = self._greetings(ids, timeout)
        try:
            for done in asyncio.as_completed(tasks):
                await done
                if not isinstance(self._catalog.resolve(name), Failure):
                    return None
        finally:
            await _drop(tasks)
        failures = refusals + [failure for task in tasks if (failure := task.result()) is not None]
        if failures and (owners or not self._catalog.named()):
            return failures[0]
        return self._perhaps(name, failures)

    def _known(self, unknown: Mapping[str, Failure | None]) -> Iterable[str]:
        """Plugins that have told what they offer: what is asked of them by their name is offered by nobody else."""
        return self._supervisors().keys() - unknown.keys()

    def _perhaps(self, name: str, failures: list[Failure]) -> Failure | None:
        """That nobody here has the name, and who may have it but could not be asked."""
        nobody = self._catalog.resolve(name)
        if not failures or not isinstance(nobody, Failure):
            return None
        away = "; ".join(f"{failure.plugin}: {failure.message}" for failure in failures)
        return nobody.with_detail(hint=f"it may be offered by plugins that are not there now: {away}")

    async def meet(self, names: Sequence[str], timeout: float | None) -> dict[str, Failure]:
        """Get to know these, or everybody; who could not be greeted, and why. Who may not run is not started."""
        unknown, running = self._unknown(), self._supervisors()
        wanted = dict.fromkeys(names) or [plugin_id for plugin_id, refusal in unknown.items() if refusal is None]
        refused = {name: why for name in wanted if (why := _refusal(name, unknown, running)) is not None}
        ids = [name for name in wanted if name not in refused]
        tasks = self._greetings(ids, timeout)
        try:
            met = await asyncio.gather(*tasks)
        finally:
            await _drop(tasks)
        return refused | {name: failure for name, failure in zip(ids, met, strict=True) if failure is not None}

    def _greetings(self, ids: Iterable[str], timeout: float | None) -> list[asyncio.Task[Failure | None]]:
        found = self._supervisors()
        loop = asyncio.get_running_loop()
        return [loop.create_task(_greeted(found[each], timeout)) for each in ids if each in found]


def _refusal(name: str, unknown: Mapping[str, Failure | None], running: Mapping[str, Supervisor]) -> Failure | None:
    if name not in running:
        return Failure(Code.NOT_FOUND, f"no running plugin is called {name!r}", plugin=name)
    return unknown.get(name)


async def _greeted(supervisor: Supervisor, timeout: float | None) -> Failure | None:
    """None when the plugin is up, and so has told what it offers."""
    times = supervisor.binding.spec.timeouts
    lease = await supervisor.lease(Deadline(times.launch + times.handshake if timeout is None else timeout))
    if isinstance(lease, Failure):
        return lease
    lease.release()
    return None


async def _drop(tasks: Iterable[asyncio.Task[Failure | None]]) -> None:
    """Nobody waits for these any more; the plugins they have started stay."""
    waiting = [task for task in tasks if not task.done()]
    for task in waiting:
        task.cancel()
    if waiting:
        await asyncio.wait(waiting)
