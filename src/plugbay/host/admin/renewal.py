"""Takes over what a plugin's folder holds now: another release, or a manifest that somebody has changed.

Owns what has to be true of it, and everything in a host that is made from a spec. A friend of `Host`. Refuses to know
how a release comes into a folder, and starts nothing: whoever operates the plugin does that next.
"""

from __future__ import annotations

import asyncio

from plugbay.host.assembly import offer_names
from plugbay.host.catalog import runtime_exports
from plugbay.host.discovery.folders import Found, inspect_all, reject_duplicates
from plugbay.host.host import Host
from plugbay.host.supervision.per_org import has_execution_classes
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.spec import PluginSpec


async def renew(host: Host, plugin_id: str) -> None:
    """Read the plugin's folder again; raises `CallFailed`, and then nothing has changed."""
    at = next((at for at, item in enumerate(host.found) if item.spec and item.spec.id == plugin_id), None)
    if at is None:
        return
    old = host.found[at]
    # plugbay.toml itself declares some; it is read elsewhere.
    fresh = old if plugin_id in host.config.mcp else await asyncio.to_thread(_read, old, plugin_id)
    if fresh.spec == old.spec:
        if not host.offers.approved(plugin_id):  # perhaps it is by now
            take_over(host, old.spec)
        return
    found = reject_duplicates([*host.found[:at], fresh, *host.found[at + 1 :]])
    spec = found[at].spec
    if spec is None:
        raise _unusable(plugin_id, old, "; ".join(map(str, found[at].errors)))
    await _make_room(host, spec)
    host.found = found
    host.protection.add(found[at])
    take_over(host, spec)


def _read(old: Found, plugin_id: str) -> Found:
    """The same plugin as it is on disk now."""
    found = [item for item in inspect_all(old.root, old.contract) if item.entry == old.entry]
    if not found:
        raise _unusable(plugin_id, old, "its manifest no longer names it")
    item = found[0]
    if item.spec is None:
        raise _unusable(plugin_id, old, "; ".join(map(str, item.errors)))
    if item.spec.id != plugin_id:
        raise _unusable(plugin_id, old, f"its folder holds {item.spec.id} now; restart the host to serve that")
    return item


def _unusable(plugin_id: str, old: Found, why: str) -> CallFailed:
    text = f"{plugin_id} stays as it was, because {old.root} cannot be used: {why}"
    hint = f"plugbay inspect {old.root} shows what is wrong; once that is mended, reload the plugin"
    return CallFailed(Failure(Code.LAUNCH_FAILED, text, plugin=plugin_id, detail={"hint": hint}))


async def _make_room(host: Host, spec: PluginSpec) -> None:
    """What only this release needs is opened before it is there."""
    await host._backends.open_storage(spec)
    if has_execution_classes(spec) and not any(map(has_execution_classes, host._specs.values())):
        await host.invocations.open()


def take_over(host: Host, spec: PluginSpec | None) -> None:
    """Make everything anew that is made from a spec and an approval.

    Without an await: nobody meets a plugin of which half is new.
    """
    assert spec is not None
    host.offers.forget(spec.id)
    host._specs |= host.offers.learn([spec])
    host.decisions[spec.id] = host._bindings.decide(spec.id)
    runtime_exports.replace_exports(host._specs[spec.id], {}, host.calls.catalog, host._backends.services)
    offer_names(host.calls, host._backends)
