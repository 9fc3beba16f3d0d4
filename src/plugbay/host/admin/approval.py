"""Inspects what a plugin with run-time exports offers, and approves exactly what was seen, in a running host.

An inspection starts the plugin once in a host of its own, beside the instance that may be running. Its digest names the
offer, so that an approval cannot be about another one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from plugbay.host.catalog import approvals
from plugbay.host.host import Host
from plugbay.model.errors import CallFailed


@dataclass(frozen=True, slots=True)
class Inspection:
    """The current offer of a plugin, and its differences from the approved one."""

    plugin_id: str
    hello: dict[str, Any]
    candidate: approvals.Approval
    approved_before: bool
    changes: tuple[approvals.Change, ...]
    digest: str
    """Identifies everything that would be approved."""

    @property
    def definitions(self) -> list[tuple[str, dict[str, Any]]]:
        """Every definition, with the name of its list."""
        offer = self.candidate.offer
        return [(part, dict(definition)) for part in approvals.PARTS for definition in offer.get(part) or ()]

    def to_json(self) -> dict[str, Any]:
        """The public shape."""
        offer = self.candidate.offer
        return {
            "id": self.plugin_id,
            "digest": self.digest,
            "era": self.hello.get("era"),
            "protocol_version": self.hello.get("protocol_version"),
            "info": self.hello.get("server"),
            "definitions": {part: list(offer.get(part) or ()) for part in approvals.PARTS},
            "warnings": list(self.hello.get("warnings") or ()),
            "approved_before": self.approved_before,
            "changes": [change.to_json() for change in self.changes],
        }


async def inspect(host: Host, plugin_id: str) -> Inspection:
    """Start the plugin once, with the grants of plugbay.toml only, and read its offer.

    Raises `CallFailed`.
    """
    async with host.isolated(plugin_id) as beside:
        failures = await beside.meet(plugin_id)
        if failures:
            raise CallFailed(failures[plugin_id])
        exports = beside.runtime_exports
        hello, candidate = exports.hello(plugin_id), exports.candidate(plugin_id)
        assert hello is not None, "the plugin has greeted"
        digest = await asyncio.to_thread(digest_of, plugin_id, candidate)  # the offer may have 16 MiB
        approved = exports.approval(plugin_id) is not None
        return Inspection(plugin_id, dict(hello), candidate, approved, tuple(exports.drift(plugin_id)), digest)


def digest_of(plugin_id: str, approval: approvals.Approval) -> str:
    """The digest of an approval without its time."""
    return f"sha256:{approvals.digest({**approval.to_json(plugin_id), 'approved_at': ''})}"


async def approve(host: Host, seen: Inspection) -> None:
    """Approve exactly the inspected offer; raises `ConfigInvalid`. A reload starts the plugin with it."""
    await asyncio.to_thread(host.runtime_exports.approve, seen.plugin_id, seen.candidate)
    host.adopt(next(item.spec for item in host.found if item.spec is not None and item.spec.id == seen.plugin_id))
