"""`TrustedPublishers`: the keys that may sign packages, and the consequences when one of them is no longer trusted.

The keys are in trust.json, which `plugbay trust` changes too, so the file is watched. A package whose key was revoked,
replaced or given to another publisher is quarantined, and its active bindings are disabled. The end of a key's time
(`not_after`) changes nothing for packages that it signed before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from plugbay.model.errors import ConfigInvalid
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.trust import OtherKeys, TrustedKey, TrustStore
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.bindings import Bindings
from plugbay.server.domain.errors import GatewayError, conflict, not_found, unprocessable
from plugbay.server.domain.packages import QUARANTINED, Packages, trust_unreadable
from plugbay.server.domain.principal import OPERATOR, Principal, require_operator_of_all
from plugbay.store import packages as package_rows
from plugbay.store.database import Database
from plugbay.store.failures import StoreUnavailable
from plugbay.store.packages import PackageRow
from plugbay.store.pages import Page, Part, cut

LOG = logging.getLogger("plugbay.server.domain")

WATCH_SECONDS = 2.0
"""Between two looks at the file."""

TRUST_REMOVED = "trust_removed"
"""The reason in the audit log for a binding that was disabled."""

T = TypeVar("T")


class Consequences(msgspec.Struct, frozen=True):
    """The packages that lost their trusted signature, and the bindings that were disabled."""

    packages: tuple[PackageRow, ...] = ()
    bindings: tuple[str, ...] = ()


class TrustedPublishers:
    """The trusted keys of one gateway; the operator of all orgs alone sees and changes them."""

    def __init__(
        self, database: Database, trust: TrustStore, packages: Packages, bindings: Bindings, audit: Audit
    ) -> None:
        self._database = database
        self._trust = trust
        self._packages = packages
        self._bindings = bindings
        self._audit = audit

    async def page(self, caller: Principal, page: Page) -> Part[TrustedKey]:
        """The keys by id, including revoked ones."""
        require_operator_of_all(caller, "sees the trusted keys")
        found = await _in_thread(self._trust.keys)
        ordered = sorted(found, key=lambda key: key.key_id, reverse=True)
        return cut(ordered, page, lambda key: (0.0, key.key_id))

    async def add(
        self,
        caller: Principal,
        public_key: bytes,
        publisher: str,
        packages: Sequence[str] = (),
        not_after: datetime | None = None,
        other_keys: OtherKeys = "refuse",
    ) -> tuple[TrustedKey, Consequences]:
        """Trust a key; raises if the publisher has another key, unless `other_keys` says otherwise."""
        require_operator_of_all(caller, "trusts publishers")
        try:
            key = TrustedKey(public_key, publisher, tuple(packages), not_after)
        except ValueError as error:
            raise unprocessable("trust.invalid_publisher", str(error), "publisher") from None
        async with self._database.transaction() as tx:
            replaced = await _in_thread(lambda: self._trust.add(key, other_keys))
            facts: dict[str, Any] = {
                "publisher": publisher,
                "packages": list(packages),
                "replaced": [item.key_id for item in replaced],
            }
            await self._audit.record(tx, caller, "trust.add", "trusted_key", key.key_id, **facts)
            return key, await self.enforce(caller)

    async def remove(self, caller: Principal, key_id: str) -> tuple[TrustedKey, Consequences]:
        """Revoke a key for ever, quarantine the packages that it signed, and disable their bindings."""
        require_operator_of_all(caller, "revokes trusted keys")
        async with self._database.transaction() as tx:
            key = await _in_thread(lambda: self._trust.revoke(key_id))
            await self._audit.record(tx, caller, "trust.revoke", "trusted_key", key_id, publisher=key.publisher)
            return key, await self.enforce(caller)

    async def enforce(self, caller: Principal) -> Consequences:
        """Withdraw the packages whose key is no longer trusted for them; repeating it changes nothing.

        A missing file withdraws nothing: it is new, or was moved by mistake.
        """
        known = await _in_thread(self._trust.read)
        if known is None:
            return Consequences()
        trusted = {key.key_id: key for key in known if not key.revoked}
        packages, bindings = [], []
        async with self._database.transaction() as tx:
            for row in await package_rows.verified(tx):
                key = trusted.get(row.key_id or "")
                if key is not None and key.covers(row.package_id):
                    continue
                judged = await self._packages.distrust(tx, caller, row)
                packages.append(judged)
                if judged.status == QUARANTINED:
                    bindings += await self._bindings.disable_all(tx, caller, row.id, TRUST_REMOVED)
        if packages:
            LOG.warning("packages without a trusted signature: %d; disabled bindings: %d", len(packages), len(bindings))
        return Consequences(tuple(packages), tuple(bindings))

    async def run(self) -> None:
        """Enforce the file at the start and after each change of it, until cancelled."""
        seen: object = None
        while True:
            found = await asyncio.to_thread(self._stamp)
            if found is not None and found != seen:
                try:
                    await self.enforce(OPERATOR)
                    seen = found
                except (GatewayError, StoreUnavailable) as error:
                    LOG.warning("the changed trusted keys are not applied yet: %s", error)
            await asyncio.sleep(WATCH_SECONDS)

    def _stamp(self) -> tuple[int, ...] | None:
        """A value that changes with the file; None if there is none."""
        try:
            found = self._trust.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


async def _in_thread(work: Callable[[], T]) -> T:
    """Use the file in a thread, and translate its errors."""
    try:
        return await asyncio.to_thread(work)
    except ConfigInvalid:
        raise trust_unreadable() from None
    except PackageRefused as refused:
        raise _as_gateway_error(refused) from None


def _as_gateway_error(refused: PackageRefused) -> GatewayError:
    code = f"trust.{refused.reason}"
    if refused.reason is Reason.NOT_FOUND:
        return not_found("trusted_key", refused.detail["key_id"])
    if refused.reason is Reason.KEY_CONFLICT:
        return conflict(
            code, f"{refused.message}; set other_keys to keep or replace", "other_keys", keys=refused.detail["keys"]
        )
    if refused.reason is Reason.KEY_REVOKED:
        return conflict(code, refused.message)
    return unprocessable(code, refused.message, "public_key")
