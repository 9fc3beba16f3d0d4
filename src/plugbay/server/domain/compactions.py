"""`Compactions`: derive a shorter chain from a long one, which stays unchanged.

A compaction creates at most one chain. The new chain, the end of the compaction and its event are committed together,
and only if the source still has the digest the seed was made from. The host validates the seed. Compactors have no side
effects, so a compaction interrupted by a killed gateway is started again, at most `MAX_STARTS` times.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from plugbay.host.invocations.kinds import serves_context
from plugbay.host.request import CallRequest
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.background import BackgroundJobs, retry_until_stored
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.deliveries import CHAIN_COMPACTED, Events, NewEvent
from plugbay.server.domain.errors import conflict, denied, unprocessable
from plugbay.server.domain.ids import Ids, new_id, new_trace_id
from plugbay.server.domain.orgs import tenant
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.sessions import (
    Block,
    Chains,
    clean_seed_block,
    decode_block,
    first_broken_block,
    project_block,
    reads_only_own,
)
from plugbay.server.domain.workers import (
    Budgets,
    Workers,
    WorkOutcome,
    charge_budget,
    cut_off_outcome,
    failed_outcome,
    find_provenance,
    perform,
)
from plugbay.store import chains as chain_rows
from plugbay.store import compactions as rows
from plugbay.store import invocations as invocation_rows
from plugbay.store import sessions as session_rows
from plugbay.store.chains import Chain, StoredBlock
from plugbay.store.compactions import Compaction
from plugbay.store.database import Database, Tx
from plugbay.store.pages import Page, Part
from plugbay.store.rows import ANY_OWNER

MAX_STARTS = 3
"""Starts of one compaction, including those interrupted by a killed gateway."""


class CompactionRequest(msgspec.Struct, frozen=True):
    """A client's request."""

    chain_id: str
    target: dict[str, Any]
    policy: dict[str, Any]
    binding_id: str | None = None
    pinned: Sequence[str] = ()
    """Ids of blocks that must be in the new chain."""
    compaction_id: str | None = None
    trace_id: str | None = None


class Compactions:
    """All compactions."""

    def __init__(
        self,
        database: Database,
        chains: Chains,
        workers: Workers,
        budgets: Budgets,
        events: Events,
        audit: Audit,
        clock: Clock,
        ids: Ids = new_id,
    ) -> None:
        self._database = database
        self._chains = chains
        self._sessions = chains.sessions
        self._workers = workers
        self._budgets = budgets
        self._events = events
        self._audit = audit
        self._clock = clock
        self._ids = ids
        self._jobs: BackgroundJobs[WorkOutcome] = BackgroundJobs(partial(cut_off_outcome, "compaction"))

    async def start(self) -> None:
        """Restart compactions of the last server; those of other gateways are restarted when their leases end."""
        if self._database.fence is None:
            await self.close_left(ANY_OWNER)

    async def close_left(self, owner: str | None) -> None:
        """Restart unfinished compactions of a killed gateway here, at most `MAX_STARTS` times."""
        ours = self._database.owner
        async with self._database.reading() as tx:
            left = await rows.unfinished(tx, owner)
        for compaction in left:
            if compaction.attempts < MAX_STARTS:
                async with self._database.transaction(fenced=True) as tx:
                    taken = await rows.take_over(tx, compaction.id, compaction.owner, ours)
                if taken:
                    self._launch(replace(compaction, owner=ours))
            else:
                text = "the gateway was restarted too often during this compaction"
                await self._finish(compaction, failed_outcome("compaction.host_restarted", text))

    async def stop(self) -> None:
        """Cancel running compactions and record their ends."""
        await self._jobs.stop()

    # For clients.

    async def create(self, caller: Principal, wanted: CompactionRequest) -> Compaction:
        """Create a compaction and start it after the commit. The same id returns the same compaction."""
        async with self._database.transaction(fenced=True) as tx:
            chain = await self._chains.existing(tx, caller, wanted.chain_id)
            known = None if wanted.compaction_id is None else await rows.find(tx, wanted.compaction_id)
            if known is not None:
                return _require_same_chain(known, chain)
            if chain.block_count == 0:
                raise unprocessable("compaction.empty_chain", f"{chain.id} has no blocks", "chain_id")
            binding_id = await self._compactor(chain, wanted.binding_id, wanted.target.get("target_context"))
            pinned = await self._pinned(tx, chain, wanted.pinned)
            cause = await find_provenance(tx, caller)
            await charge_budget(tx, self._budgets, caller, cause, "compaction", cause.depth)
            compaction = Compaction(
                id=wanted.compaction_id or self._ids("cmp_"),
                org_id=chain.org_id,
                project_id=chain.project_id,
                session_id=chain.session_id,
                chain_id=chain.id,
                new_chain_id=None,
                binding_id=binding_id,
                status="queued",
                target=wanted.target,
                policy=wanted.policy,
                pinned_items=pinned,
                source_digest=chain.digest,
                source_blocks=chain.block_count,
                summary=None,
                diagnostics=None,
                error=None,
                created_by_run_id=cause.run_id,
                invocation_id=caller.invocation_id,
                attempts=0,
                cause_depth=cause.events,
                trace_id=cause.trace_id or wanted.trace_id or new_trace_id(),
                owner=self._database.owner,
                created_at=self._clock.now(),
                started_at=None,
                completed_at=None,
            )
            if not await rows.insert(tx, compaction):
                raise conflict("compaction.exists", f"compaction {compaction.id} already exists", "compaction_id")
            await self._audit.record_change(tx, caller, "compaction.create", compaction, chain_id=chain.id)
            self._database.after_commit(lambda: self._launch(compaction), in_doubt=True)
            return compaction

    async def get(self, caller: Principal, id: str) -> Compaction:
        async with self._database.reading() as tx:
            found = await self._sessions.require(tx, caller, "compaction", id, await rows.find(tx, id))
        if reads_only_own(caller, "compactions:read") and found.invocation_id != caller.invocation_id:
            text = "this token reads only its own compactions"
            raise denied("auth.scope_denied", text, required=["compactions:read"])
        return found

    async def page(
        self, caller: Principal, part: Page, search: str | None = None, **filters: str | None
    ) -> Part[Compaction]:
        """Compactions visible to the caller; `search` is part of an id."""
        async with self._database.reading() as tx:
            only = await self._sessions.lineage(tx, caller)
            if reads_only_own(caller, "compactions:read"):
                filters["invocation_id"] = caller.invocation_id
            return await rows.page(tx, part, tenant(caller), only=only, search=search, **filters)

    async def _compactor(self, chain: Chain, wanted: str | None, context: str | None) -> str:
        """The compactor's binding: the named one, or the only active one for this context of conversations."""
        if wanted is not None:
            bound = await self._workers.bound("compactor", chain.org_id, chain.project_id, wanted)
            if bound is None:
                text = f"{wanted!r} is not an active binding of a compactor here"
                raise unprocessable("compaction.no_compactor", text, "compactor.binding_id")
            declared = bound.facts.get("target_context")
            if not serves_context(declared, context):
                text = f"{bound.export_id} compacts conversations of the context {declared!r}, not {context!r}"
                raise unprocessable("compaction.other_context", text, "target.target_context")
            return wanted
        found = await self._workers.serving("compactor", chain.org_id, chain.project_id, chain.session_id)
        serving = [each for each in found if serves_context(each.facts.get("target_context"), context)]
        if len(serving) == 1:
            return serving[0].binding_id
        of_context = "" if context is None else f" for the context {context!r}"
        text = (
            f"several compactors are bound here{of_context}; name one"
            if serving
            else f"no compactor{of_context} is bound here"
        )
        candidates = [each.binding_id for each in serving]
        raise unprocessable("compaction.no_compactor", text, "compactor.binding_id", candidates=candidates)

    async def _pinned(self, tx: Tx, chain: Chain, ids: Sequence[str]) -> list[Block]:
        if not ids:
            return []
        found = {block.id: block for block in await chain_rows.blocks(tx, chain.id)}
        missing = next((id for id in ids if id not in found), None)
        if missing is not None:
            raise unprocessable("compaction.no_such_block", f"{chain.id} has no block {missing!r}", "pinned_items")
        return [project_block(decode_block(found[id])) for id in ids]

    # Running.

    def _launch(self, compaction: Compaction) -> None:
        self._jobs.launch(
            compaction.id, lambda: self._perform(compaction), lambda outcome: self._finish(compaction, outcome)
        )

    async def _perform(self, compaction: Compaction) -> WorkOutcome:
        async def begin() -> tuple[bool, int, list[StoredBlock]]:
            async with self._database.transaction(fenced=True) as tx:
                begun = await rows.begin(tx, compaction.id, compaction.owner, self._clock.now())
                tried = await invocation_rows.count(tx, compaction.org_id, compaction.id)
                stored = await chain_rows.blocks(tx, compaction.chain_id, through=compaction.source_blocks)
                return begun, tried, stored

        begun, tried, stored = await retry_until_stored(begin)
        if not begun:
            return failed_outcome("compaction.ended", "the compaction has already ended")
        projection = {
            "blocks": [project_block(decode_block(block)) for block in stored],
            "pinned_items": compaction.pinned_items,
        }
        request = {
            "compaction_id": compaction.id,
            "source": {"chain_id": compaction.chain_id, "projection": projection},
            "target": compaction.target,
            "policy": compaction.policy,
        }
        return await perform(self._workers, _call_request(compaction, request, tried + 1))

    async def _finish(self, compaction: Compaction, outcome: WorkOutcome) -> None:
        """Commit the new chain, the end and the event together."""
        now = self._clock.now()
        async with self._database.transaction() as tx:
            ended: dict[str, Any] = {"status": outcome.status, "error": outcome.error, "completed_at": now}
            if outcome.value is None:
                await rows.end(tx, compaction.id, compaction.owner, **ended)
                return
            source = await chain_rows.find(tx, compaction.chain_id, lock=True)
            current = await rows.find(tx, compaction.id, lock=True)
            assert source is not None and current is not None
            if current.status not in rows.UNFINISHED or current.owner != compaction.owner:
                return
            stored = await chain_rows.blocks(tx, source.id, through=compaction.source_blocks)
            if not stored or stored[-1].digest != compaction.source_digest or first_broken_block(stored) is not None:
                broken = failed_outcome("compaction.source_changed", f"{source.id} was modified")
                failed = {"status": broken.status, "error": broken.error, "completed_at": now}
                await rows.end(tx, compaction.id, compaction.owner, **failed)
                return
            made = await self._new_chain(tx, compaction, source, outcome.value)
            summary = outcome.value.get("summary")
            await rows.end(
                tx,
                compaction.id,
                compaction.owner,
                **ended,
                new_chain_id=made.id,
                summary=summary,
                diagnostics=outcome.value.get("diagnostics"),
            )
            await self._events.record(tx, _compacted_event(compaction, made, summary))

    async def _new_chain(self, tx: Tx, compaction: Compaction, source: Chain, result: dict[str, Any]) -> Chain:
        session = await session_rows.find(tx, source.session_id)
        assert session is not None
        return await self._chains.begin(
            tx,
            session,
            [clean_seed_block(block) for block in result["seed_blocks"]],
            defaults=source.defaults,
            metadata=source.metadata,
            parent=source.id,
            compaction_id=compaction.id,
        )


def _call_request(compaction: Compaction, request: dict[str, Any], attempt: int) -> CallRequest:
    return CallRequest(
        binding_id=compaction.binding_id,
        kind="compactor",
        input=request,
        org_id=compaction.org_id,
        project_id=compaction.project_id,
        execution_id=compaction.id,
        trace_id=compaction.trace_id,
        session_id=compaction.session_id,
        chain_id=compaction.chain_id,
        run_id=compaction.created_by_run_id,
        attempt=attempt,
    )


def _compacted_event(compaction: Compaction, made: Chain, summary: Any) -> NewEvent:
    text = summary.get("text") if isinstance(summary, dict) else None
    return NewEvent(
        type=CHAIN_COMPACTED,
        subject_kind="chain",
        subject_id=compaction.chain_id,
        cause_id=compaction.id,
        org_id=compaction.org_id,
        project_id=compaction.project_id,
        session_id=compaction.session_id,
        chain_id=compaction.chain_id,
        run_id=compaction.created_by_run_id,
        summary={
            "compaction_id": compaction.id,
            "source_chain_id": compaction.chain_id,
            "new_chain_id": made.id,
            "text": text,
        },
        trace_id=compaction.trace_id,
        cause_depth=compaction.cause_depth + 1,
    )


def _require_same_chain(known: Compaction, chain: Chain) -> Compaction:
    if known.chain_id != chain.id:
        raise conflict("compaction.id_conflict", f"{known.id} belongs to another chain", "compaction_id")
    return known
