"""`FolderWatch`: a running host follows its folders. A plugin that appears is hosted, one whose folder is gone is not.

A hosted plugin whose files change stays as it is until it is reloaded. A newcomer never displaces a hosted plugin: it
is the one that is refused when both claim a name.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from plugbay.contracts.registry import CONTRACTS
from plugbay.host.discovery.folders import MAX_FOLDERS, Found, reject_duplicates, scan
from plugbay.host.host import Host
from plugbay.model.errors import PlugbayError, Problem

POLL_SECONDS = 0.3
"""Between two looks. A change counts once the next look finds it unchanged: a folder may be half copied."""

MAX_UNSETTLED = 5
"""Looks after which a change counts although the folder still changes."""

MANIFESTS = tuple(dict.fromkeys(name for contract in CONTRACTS.values() for name in contract.manifest_files))

ADDED, REMOVED, REFUSED = "added", "removed", "not_added"
"""Kinds of journal notes."""


class Plan(msgspec.Struct, frozen=True):
    """The steps from the hosted plugins to those on disk."""

    removed: tuple[str, ...]
    """Ids."""
    added: tuple[Found, ...]
    found: list[Found]
    """Everything, usable or not, after these steps."""


def plan(current: Iterable[Found], fresh: Iterable[Found], elsewhere: Iterable[Found] = ()) -> Plan:
    """Compare the plugins of a host with those on disk. Plugins from `elsewhere` stay."""
    on_disk = {item.key: item for item in fresh}
    unreadable = {item.root for item in on_disk.values() if any(each.code == "unreadable" for each in item.errors)}
    fixed = {item.key for item in elsewhere}
    kept, removed = [], []
    for old in current:
        now = on_disk.get(old.key)
        if old.key in fixed:
            kept.append(old)
        elif old.spec is None:
            continue
        elif old.places & unreadable:
            kept.append(old)
        elif now is None or (now.spec is not None and now.spec.id != old.spec.id):
            removed.append(old.spec.id)
        else:
            kept.append(replace(old, problems=now.problems))
    known = {item.key for item in kept}
    new = [item for item in on_disk.values() if item.key not in known]
    checked = reject_duplicates([*kept, *new])[len(kept) :]
    return Plan(tuple(removed), tuple(item for item in checked if item.spec is not None), [*kept, *checked])


def plan_servers(current: Iterable[Found], before: Iterable[Found], after: Iterable[Found]) -> Plan:
    """Compare the MCP servers of two versions of plugbay.toml. One with another declaration goes, and comes anew."""
    old, new = {item.key: item for item in before}, {item.key: item for item in after}
    same = {key for key in new if old.get(key) == new[key]}
    kept: list[Found] = []
    gone: list[Found] = []
    for item in current:
        (gone if item.key in old and item.key not in same else kept).append(item)
    fresh = [item for key, item in new.items() if key not in same]
    checked = reject_duplicates([*kept, *fresh])[len(kept) :]
    removed = tuple(item.spec.id for item in gone if item.spec is not None)
    return Plan(removed, tuple(item for item in checked if item.spec is not None), [*kept, *checked])


async def take_steps(host: Host, steps: Plan) -> None:
    """Host the plugins that are new, and let go of those that are gone."""
    host.found = steps.found
    for plugin_id in steps.removed:
        host.journal.note(plugin_id, REMOVED, "its folder or its declaration is gone", severity=logging.INFO)
        host.remove(plugin_id)
    for item in steps.added:
        await _add(host, item)


async def _add(host: Host, item: Found) -> None:
    assert item.spec is not None
    try:
        await host.add(item)
    except PlugbayError as error:
        host.journal.note(item.spec.id, REFUSED, str(error))
        unusable = replace(item, spec=None, problems=(*item.problems, Problem(REFUSED, "", str(error))))
        host.found = [unusable if other is item else other for other in host.found]
        return
    host.journal.note(item.spec.id, ADDED, f"found in {item.root}", severity=logging.INFO)


class FolderWatch:
    """Keeps one running host in step with the folders that it was made from, on the host's own loop."""

    def __init__(self, host: Host, paths: Sequence[Path]) -> None:
        self._host = host
        self._paths = tuple(paths)
        self._scanning = asyncio.Lock()

    @property
    def _others(self) -> list[Found]:
        """Plugins that come from elsewhere: from plugbay.toml, whose folder may be a watched one, or from one file."""
        watched, servers = set(self._paths), self._host.config.mcp
        return [item for item in self._host.found if item.entry in servers or not item.places & watched]

    async def run(self) -> None:
        """Follow the folders until cancelled."""
        handled: object = None  # a plugin may have come or gone while the host started
        seen = await asyncio.to_thread(self._stamp)
        unsettled = 0
        while True:
            await asyncio.sleep(POLL_SECONDS)
            stamp = await asyncio.to_thread(self._stamp)
            unsettled = unsettled + 1 if stamp != seen else 0
            seen = stamp
            if stamp == handled or 0 < unsettled < MAX_UNSETTLED:
                continue
            handled, unsettled = stamp, 0
            await self.rescan()

    async def rescan(self) -> Plan:
        """Read the folders again, host the plugins that are new, and let go of those that are gone.

        One at a time: a scan that began before another one ended may lack its plugins.
        """
        async with self._scanning:
            return await self._rescan()

    async def _rescan(self) -> Plan:
        fresh = await asyncio.to_thread(scan, self._paths)
        steps = plan(self._host.found, fresh, self._others)
        await take_steps(self._host, steps)
        return steps

    def _stamp(self) -> object:
        """Changes with the entries of the folders, and with the manifests of plugins that could not be used."""
        stamps = [_stamp_of(path) for path in self._paths]
        for path in self._paths:
            stamps += [_stamp_of(path / name) for name in (*MANIFESTS, *_names_in(path))]
        broken = [item.root for item in self._host.found if item.spec is None]
        return stamps, [_stamp_of(root / name) for root in broken for name in MANIFESTS]


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))[:MAX_FOLDERS]
    except OSError:
        return []


def _stamp_of(path: Path) -> tuple[str, int, int, int] | None:
    """The identity and the time of the last change. The size of a folder says nothing; that of a file may."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    size = 0 if stat.S_ISDIR(info.st_mode) else info.st_size
    return str(path), info.st_ino, info.st_mtime_ns, size
