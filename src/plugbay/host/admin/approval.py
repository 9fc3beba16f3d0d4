"""A look at what a plugin offers that only itself can tell, and the approval of exactly what was seen, in a host that
runs.

Owns the one start that a look takes, beside the plugin that may be running, and the digest by which an approval names
what it is about. A friend of `Host`. What an approval is, and what follows from it, is `pins`' and `offers`'.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from plugbay.host.admin.renewal import take_over
from plugbay.host.catalog import approvals
from plugbay.host.host import Host
from plugbay.model.errors import CallFailed


@dataclass(frozen=True, slots=True)
class Look:
    """One plugin as it showed itself, beside what was approved of it."""

    plugin_id: str
    hello: dict[str, Any]
    candidate: approvals.Pin
    approved_before: bool
    changes: tuple[approvals.Change, ...]
    digest: str
    """Of all that would be approved."""

    @property
    def definitions(self) -> list[tuple[str, dict[str, Any]]]:
        """Everything it offers: of each the list it is in, and its own words."""
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


async def look(host: Host, plugin_id: str) -> Look:
    """Start the plugin once, with nothing granted that plugbay.toml does not grant, and let it say what it offers.

    Raises `CallFailed`.
    """
    found = [item for item in host.found if item.spec is not None and item.spec.id == plugin_id]
    is_declared = plugin_id in host.config.mcp
    only = {plugin_id: host.config.mcp[plugin_id]} if is_declared else {}
    beside = Host(
        [] if is_declared else found,
        host.config.model_copy(update={"mcp": only, "broker": None, "memory": None}),  # these are the host's own
        trusted=(plugin_id,),
        eager=False,
        unconfined=host._bindings._options.unconfined,
        log_dir=host._log_dir,
        state_dir=host._bindings._state_dir,
        protected=host.protection.everything,
    )
    async with beside:
        failures = await beside.meet(plugin_id)
        if failures:
            raise CallFailed(failures[plugin_id])
        offers = beside.offers
        hello, candidate = offers.hello(plugin_id), offers.candidate(plugin_id)
        assert hello is not None, "who has been met has said what it is"
        digest = await asyncio.to_thread(digest_of, plugin_id, candidate)  # of 16 MiB, perhaps
        approved = offers.pin(plugin_id) is not None
        return Look(plugin_id, dict(hello), candidate, approved, tuple(offers.drift(plugin_id)), digest)


def digest_of(plugin_id: str, pin: approvals.Pin) -> str:
    """A name for everything that an approval holds but its time."""
    return f"sha256:{approvals.digest({**pin.to_json(plugin_id), 'approved_at': ''})}"


async def approve(host: Host, seen: Look) -> None:
    """From now on the plugin may offer exactly what was seen; raises `ConfigInvalid`. A reload starts it."""
    await asyncio.to_thread(host.offers.approve, seen.plugin_id, seen.candidate)
    take_over(host, next(item.spec for item in host.found if item.spec is not None and item.spec.id == seen.plugin_id))
