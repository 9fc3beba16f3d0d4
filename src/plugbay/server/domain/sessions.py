"""`Sessions` group chains; `Chains` are append-only lists of blocks, with forks that start with the same bytes.

A block is stored as canonical JSON with a digest over the chain so far, so any change is detectable. Clients may send
only certain kinds and fields. A chain grows only here, one version at a time, while its row is locked. A plugin with a
delegated token sees the session it was called for and sessions branched from it; without a session it sees none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from plugbay.host.invocations import compaction_result
from plugbay.host.invocations.compaction_result import KINDS
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.clock import Clock, stamp
from plugbay.server.domain.errors import GatewayError, conflict, invalid, not_found, unprocessable
from plugbay.server.domain.ids import Ids, new_id
from plugbay.server.domain.orgs import Orgs, tenant
from plugbay.server.domain.principal import Principal
from plugbay.store import chains as chain_rows
from plugbay.store import runs as run_rows
from plugbay.store import sessions as session_rows
from plugbay.store.chains import Chain, StoredBlock
from plugbay.store.database import Database, Tx
from plugbay.store.pages import Page, Part
from plugbay.store.sessions import Session

MAX_LINEAGE = 10_000
"""Sessions in one lineage; a plugin sees no more."""


def reads_only_own(caller: Principal, scope: str) -> bool:
    """Whether a caller reads only records that it created: a token that may write, without the scope to read."""
    return caller.kind == "delegated" and scope not in caller.scopes


class OfSession(Protocol):
    """A record of one session, such as a chain or a run."""

    @property
    def org_id(self) -> str: ...
    @property
    def project_id(self) -> str | None: ...
    @property
    def session_id(self) -> str: ...


R = TypeVar("R", bound=OfSession)


class Sessions:
    """All sessions."""

    def __init__(self, database: Database, orgs: Orgs, audit: Audit, clock: Clock, ids: Ids = new_id) -> None:
        self._database = database
        self._orgs = orgs
        self._audit = audit
        self._clock = clock
        self._ids = ids

    async def create(
        self,
        caller: Principal,
        *,
        org_id: str | None = None,
        project_id: str | None = None,
        external_session_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Session:
        """Create a session without a chain."""
        async with self._database.transaction() as tx:
            if caller.kind == "delegated":
                raise unprocessable("session.not_in_lineage", "a plugin can only branch its own session")
            org, project = await self._home(tx, caller, org_id, project_id)
            return await self.insert(
                tx, caller, org, project, external_session_id=external_session_id, metadata=metadata or {}
            )

    async def _home(
        self, tx: Tx, caller: Principal, org_id: str | None, project_id: str | None
    ) -> tuple[str, str | None]:
        """Org and project of a new session: as given, or the caller's."""
        org, project = org_id or caller.org_id, project_id or caller.project_id
        if org is None:
            raise invalid("session.org_missing", "an operator of all orgs must name the org", "org_id")
        await self._orgs.scope(tx, caller, org, project)
        return org, project

    async def insert(
        self,
        tx: Tx,
        caller: Principal,
        org_id: str,
        project_id: str | None,
        *,
        parent: str | None = None,
        external_session_id: str | None = None,
        metadata: dict[str, Any],
    ) -> Session:
        """A new session, as part of a transaction."""
        now = self._clock.now()
        session = Session(
            id=self._ids("sess_"),
            org_id=org_id,
            project_id=project_id,
            external_session_id=external_session_id,
            metadata=metadata,
            latest_chain_id=None,
            parent_session_id=parent,
            created_at=now,
            updated_at=now,
        )
        await session_rows.insert(tx, session)
        await self._audit.record_change(tx, caller, "session.create", session)
        return session

    async def get(self, caller: Principal, id: str) -> Session:
        async with self._database.reading() as tx:
            return await self.existing(tx, caller, id)

    async def page(
        self,
        caller: Principal,
        part: Page,
        *,
        external_session_id: str | None = None,
        org_id: str | None = None,
        search: str | None = None,
    ) -> Part[Session]:
        """Sessions visible to the caller; `search` is part of an id."""
        filters = {"external_session_id": external_session_id, "org_id": org_id}
        async with self._database.reading() as tx:
            only = await self.lineage(tx, caller)
            return await session_rows.page(tx, part, tenant(caller), only=only, search=search, **filters)

    async def change(self, caller: Principal, id: str, **values: Any) -> Session:
        """Update metadata or external id."""
        async with self._database.transaction() as tx:
            session = await self.existing(tx, caller, id)
            await session_rows.change(tx, id, **values, updated_at=self._clock.now())
            await self._audit.record_change(tx, caller, "session.update", session, fields=sorted(values))
            return await self.existing(tx, caller, id)

    # Within a transaction.

    async def existing(self, tx: Tx, caller: Principal, id: str) -> Session:
        """The session; raises `not_found` if the caller may not see it."""
        session = await session_rows.find(tx, id)
        if session is None or not await self._sees(tx, caller, session.org_id, session.project_id, id):
            raise not_found("session", id)
        return session

    async def require(self, tx: Tx, caller: Principal, kind: str, id: str, found: R | None) -> R:
        """The record of a session that was found; raises `not_found` if the caller may not see it."""
        if found is None or not await self._sees(tx, caller, found.org_id, found.project_id, found.session_id):
            raise not_found(kind, id)
        return found

    async def _sees(self, tx: Tx, caller: Principal, org_id: str, project_id: str | None, session_id: str) -> bool:
        return caller.sees(org_id, project_id) and await self._reaches(tx, caller, session_id)

    async def _reaches(self, tx: Tx, caller: Principal, id: str) -> bool:
        """Whether a plugin's own session is this one or an ancestor of it."""
        if caller.kind != "delegated":
            return True
        root, current = caller.claims.get("session_id"), id
        for _ in range(MAX_LINEAGE):
            if current == root:
                return True
            session = await session_rows.find(tx, current)
            if session is None or session.parent_session_id is None:
                return False
            current = session.parent_session_id
        return False

    async def lineage(self, tx: Tx, caller: Principal) -> frozenset[str] | None:
        """The sessions a plugin is limited to; None: no limit."""
        if caller.kind != "delegated":
            return None
        root = caller.claims.get("session_id")
        found = latest = frozenset() if root is None else frozenset({root})
        while latest and len(found) < MAX_LINEAGE:
            latest = await session_rows.children(tx, latest) - found
            found |= latest
        return found


# Blocks.

Block = dict[str, Any]

EMPTY_DIGEST = "0" * 64
"""The digest of a chain without blocks."""

MAX_BLOCKS = 2_000
"""Blocks per request: enough to import a chain."""

MAX_BLOCK_BYTES = 4 << 20
"""Bytes of one block as JSON: enough for an image."""

CONTENT_TYPES = frozenset("text image audio video document".split())
SOURCE_TYPES = frozenset("base64 url asset".split())

_TOOL_FIELDS = {
    "tool_call": ("tool_call_id", "name", "input"),
    "tool_result": ("tool_call_id", "tool_execution_id", "is_error", "structured_output"),
}
"""Additional fields by kind."""

_COMMON_FIELDS = ("kind", "content")
_ENCODER = msgspec.json.Encoder(order="sorted")


def text_block(kind: str, text: str) -> Block:
    """A block with one text."""
    return {"kind": kind, "content": [{"type": "text", "text": text}]}


def text_of(blocks: Iterable[Mapping[str, Any]]) -> str:
    """The text of these blocks."""
    items = (item for block in blocks for item in block.get("content", ()))
    return "\n".join(item["text"] for item in items if item.get("type") == "text" and isinstance(item.get("text"), str))


# Blocks from clients.


def check_blocks(blocks: Sequence[Mapping[str, Any]], kinds: frozenset[str], param: str = "blocks") -> list[Block]:
    """Validate blocks from a client and drop fields it may not set."""
    if len(blocks) > MAX_BLOCKS:
        raise _invalid_blocks(param, f"a request has at most {MAX_BLOCKS:,} blocks")
    clean = [project_block(block) for block in blocks]
    for at, block in enumerate(clean):
        why = _block_problem(block, kinds)
        if why is not None:
            raise _invalid_blocks(f"{param}[{at}]", why)
    found = compaction_result.violations({"seed_blocks": clean}, {}, clean, ()) if clean else []
    if found:
        raise _invalid_blocks(param, found[0].replace("seed_blocks", param))
    return clean


def project_block(block: Mapping[str, Any]) -> Block:
    """The content of a block, for clients and compactors: no id, position, time or run."""
    names = (*_COMMON_FIELDS, *_TOOL_FIELDS.get(str(block.get("kind")), ()))
    return {name: block[name] for name in names if name in block}


def _block_problem(block: Block, kinds: frozenset[str]) -> str | None:
    kind = block.get("kind")
    if kind not in kinds:
        return f"the kind must be one of {', '.join(sorted(kinds))}"
    if len(_ENCODER.encode(block)) > MAX_BLOCK_BYTES:
        return f"a block has at most {MAX_BLOCK_BYTES:,} bytes"
    content = block.get("content", [])
    if not isinstance(content, list):
        return "content must be a list"
    return next((why for item in content if (why := _content_problem(item)) is not None), None)


def _content_problem(item: Any) -> str | None:
    kind = item.get("type") if isinstance(item, dict) else None
    if not isinstance(kind, str) or kind not in CONTENT_TYPES:
        return f"content must have a type of {', '.join(sorted(CONTENT_TYPES))}"
    if kind == "text":
        return None if isinstance(item.get("text"), str) else "content of type text must have a text"
    source = item.get("source")
    of = source.get("type") if isinstance(source, dict) else None
    if not isinstance(of, str) or of not in SOURCE_TYPES:
        return f"content of type {kind} must have a source of type {', '.join(sorted(SOURCE_TYPES))}"
    return None


def _invalid_blocks(param: str, why: str) -> GatewayError:
    return unprocessable("chain.invalid_blocks", why, param)


# Stored blocks.


def seal_blocks(
    blocks: Sequence[Mapping[str, Any]],
    *,
    chain_id: str,
    after: int,
    digest: str,
    run_id: str | None,
    now: float,
    ids: Ids,
) -> list[StoredBlock]:
    """Blocks as stored after the block with sequence `after` and this digest."""
    kept: list[StoredBlock] = []
    for sequence, block in enumerate(blocks, after + 1):
        id = ids("blk_")
        whole = {**block, "id": id, "run_id": run_id, "sequence": sequence, "created_at": stamp(now)}
        body = _ENCODER.encode(whole)
        digest = next_digest(digest, body)
        kept.append(
            StoredBlock(
                chain_id=chain_id,
                sequence=sequence,
                id=id,
                kind=block["kind"],
                run_id=run_id,
                body=body,
                digest=digest,
                created_at=now,
            )
        )
    return kept


def copy_blocks(blocks: Iterable[StoredBlock], chain_id: str) -> list[StoredBlock]:
    """The same bytes in another chain, so both have the same digest so far."""
    return [replace(block, chain_id=chain_id) for block in blocks]


def next_digest(digest: str, body: bytes) -> str:
    """The digest of a chain after one more block."""
    return hashlib.sha256(digest.encode() + body).hexdigest()


def first_broken_block(blocks: Sequence[StoredBlock]) -> int | None:
    """The sequence of the first modified or misplaced block; None if all are intact."""
    digest = EMPTY_DIGEST
    for sequence, block in enumerate(blocks, 1):
        digest = next_digest(digest, block.body)
        if block.sequence != sequence or block.digest != digest:
            return sequence
    return None


def decode_block(stored: StoredBlock) -> Block:
    """Decode a stored block."""
    block: Block = msgspec.json.decode(stored.body)
    return block


def estimate_tokens(blocks: Sequence[Mapping[str, Any]]) -> int:
    """Estimated tokens of these blocks."""
    return compaction_result.token_estimate([project_block(block) for block in blocks])


def clean_seed_block(block: Mapping[str, Any]) -> Block:
    """A seed block without the fields that the chain sets itself."""
    return {name: value for name, value in block.items() if name not in ("id", "run_id", "sequence", "created_at")}


# Chains.

IDLE, RUNNING, CLOSED = "idle", "running", "closed"

MAX_CHAIN = 100_000
"""Blocks of a chain: more than any model reads, and still quick to copy."""


class Chains:
    """All chains."""

    def __init__(self, database: Database, sessions: Sessions, audit: Audit, clock: Clock, ids: Ids = new_id) -> None:
        self._database = database
        self.sessions = sessions
        self._audit = audit
        self._clock = clock
        self._ids = ids

    async def create(
        self,
        caller: Principal,
        session_id: str,
        *,
        blocks: Sequence[Mapping[str, Any]] = (),
        defaults: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Chain:
        """Create a chain with these blocks."""
        seed = check_blocks(blocks, KINDS)
        async with self._database.transaction() as tx:
            session = await self.sessions.existing(tx, caller, session_id)
            chain = await self.begin(tx, session, seed, defaults=defaults or {}, metadata=metadata or {})
            await self._audit.record_change(tx, caller, "chain.create", chain)
            return chain

    async def get(self, caller: Principal, id: str) -> Chain:
        async with self._database.reading() as tx:
            return await self.existing(tx, caller, id)

    async def page(
        self,
        caller: Principal,
        part: Page,
        *,
        session_id: str | None = None,
        status: str | None = None,
        search: str | None = None,
    ) -> Part[Chain]:
        """Chains visible to the caller; `search` is part of an id."""
        filters = {"session_id": session_id, "status": status}
        async with self._database.reading() as tx:
            if session_id is not None:
                await self.sessions.existing(tx, caller, session_id)
            only = await self.sessions.lineage(tx, caller)
            return await chain_rows.page(tx, part, tenant(caller), only=only, search=search, **filters)

    async def context(
        self, caller: Principal, id: str, *, after: int = 0, limit: int | None = None
    ) -> tuple[Chain, list[Block]]:
        """A chain and its blocks after a sequence: the input of its next run."""
        async with self._database.reading() as tx:
            chain = await self.existing(tx, caller, id)
            stored = await chain_rows.blocks(tx, id, after=after, limit=limit)
        return chain, [decode_block(block) for block in stored]

    async def change(self, caller: Principal, id: str, *, status: str | None = None, **values: Any) -> Chain:
        """Update defaults, metadata or status. Missing values and the blocks stay."""
        async with self._database.transaction() as tx:
            chain = await self.existing(tx, caller, id, lock=True)
            if status == CLOSED and chain.status == RUNNING:
                raise attach_conflict(id)
            if chain.status == CLOSED and status != IDLE and (values or status is None):
                raise chain_closed(id)
            changes = values if status is None or chain.status == RUNNING else {**values, "status": status}
            now = self._clock.now()
            await chain_rows.change(tx, id, **changes, chain_version=chain.chain_version + 1, updated_at=now)
            await self._audit.record_change(tx, caller, "chain.update", chain, fields=sorted(changes))
            return await self.existing(tx, caller, id)

    async def fork(
        self,
        caller: Principal,
        id: str,
        *,
        through: int | None = None,
        run_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Chain:
        """Fork a chain: up to a sequence, up to the end of a run, or all of it."""
        async with self._database.transaction() as tx:
            chain = await self.existing(tx, caller, id)
            if run_id is not None:
                through = await self._end_of(tx, caller, chain, run_id)
            made = await self.copy(tx, chain, through=through, run_id=run_id, metadata=metadata)
            await self._audit.record_change(tx, caller, "chain.fork", made, source=id)
            return made

    async def branch(
        self, caller: Principal, session_id: str, *, chain_id: str | None = None, metadata: dict[str, Any] | None = None
    ) -> tuple[Session, Chain]:
        """Create a session that starts with the bytes of the named chain, or of the latest."""
        caller.must_support("branch_session")
        async with self._database.transaction() as tx:
            session = await self.sessions.existing(tx, caller, session_id)
            source_id = chain_id or session.latest_chain_id
            source = None if source_id is None else await self.existing(tx, caller, source_id)
            if source is None or source.session_id != session_id:
                text = f"{session_id} has no such chain"
                raise unprocessable("session.nothing_to_branch", text, "chain_id")
            made = await self.sessions.insert(
                tx, caller, session.org_id, session.project_id, parent=session_id, metadata=metadata or {}
            )
            chain = await self.copy(tx, source, session_id=made.id)
            return replace(made, latest_chain_id=chain.id), chain

    async def _end_of(self, tx: Tx, caller: Principal, chain: Chain, run_id: str) -> int:
        run = await run_rows.find(tx, run_id)
        if run is None or not caller.sees(run.org_id, run.project_id):
            raise not_found("run", run_id)
        if run.chain_id != chain.id:
            raise unprocessable("chain.no_such_run", f"{run_id} is not a run of {chain.id}", "run_id")
        return await chain_rows.last_of_run(tx, chain.id, run_id) or run.input_through

    # Within a transaction.

    async def existing(self, tx: Tx, caller: Principal, id: str, *, lock: bool = False) -> Chain:
        """The chain; raises `not_found` if the caller may not see it."""
        return await self.sessions.require(tx, caller, "chain", id, await chain_rows.find(tx, id, lock=lock))

    async def begin(
        self,
        tx: Tx,
        session: Session,
        blocks: Sequence[Block],
        *,
        defaults: dict[str, Any],
        metadata: dict[str, Any],
        parent: str | None = None,
        compaction_id: str | None = None,
    ) -> Chain:
        """Create a chain as the latest of a session."""
        now = self._clock.now()
        id = self._ids("ch_")
        stored = seal_blocks(blocks, chain_id=id, after=0, digest=EMPTY_DIGEST, run_id=None, now=now, ids=self._ids)
        chain = Chain(
            id=id,
            org_id=session.org_id,
            project_id=session.project_id,
            session_id=session.id,
            status=IDLE,
            chain_version=1,
            block_count=len(stored),
            token_estimate=estimate_tokens(blocks),
            digest=stored[-1].digest if stored else EMPTY_DIGEST,
            parent_chain_id=parent,
            forked_from_run_id=None,
            created_by_compaction_id=compaction_id,
            defaults=defaults,
            metadata=metadata,
            created_at=now,
            updated_at=now,
        )
        await self._insert(tx, chain, stored)
        return chain

    async def copy(
        self,
        tx: Tx,
        chain: Chain,
        *,
        through: int | None = None,
        run_id: str | None = None,
        session_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Chain:
        """Copy the first blocks of a chain into a new one, in the same or another session."""
        if through is not None and through > chain.block_count:
            raise unprocessable("chain.no_such_block", f"{chain.id} has {chain.block_count} blocks", "sequence")
        stored = await chain_rows.blocks(tx, chain.id, through=through)
        if _cuts_a_call(stored):
            raise unprocessable("chain.cuts_a_call", "a fork must keep every tool call with its result", "sequence")
        now = self._clock.now()
        made = replace(
            chain,
            id=self._ids("ch_"),
            session_id=session_id or chain.session_id,
            status=IDLE,
            chain_version=1,
            block_count=len(stored),
            token_estimate=estimate_tokens([decode_block(block) for block in stored]),
            digest=stored[-1].digest if stored else EMPTY_DIGEST,
            parent_chain_id=chain.id,
            forked_from_run_id=run_id,
            created_by_compaction_id=None,
            metadata=chain.metadata if metadata is None else metadata,
            created_at=now,
            updated_at=now,
        )
        await self._insert(tx, made, copy_blocks(stored, made.id))
        return made

    async def append(self, tx: Tx, chain: Chain, blocks: Sequence[Block], run_id: str | None, **values: Any) -> Chain:
        """Append blocks and increase the version. `chain` must be current and locked."""
        if chain.block_count + len(blocks) > MAX_CHAIN:
            raise unprocessable("chain.full", f"a chain has at most {MAX_CHAIN:,} blocks; compact or fork it")
        now = self._clock.now()
        stored = seal_blocks(
            blocks,
            chain_id=chain.id,
            after=chain.block_count,
            digest=chain.digest,
            run_id=run_id,
            now=now,
            ids=self._ids,
        )
        changed = {
            "chain_version": chain.chain_version + 1,
            "block_count": chain.block_count + len(stored),
            "token_estimate": chain.token_estimate + estimate_tokens(blocks),
            "digest": stored[-1].digest if stored else chain.digest,
            "updated_at": now,
            **values,
        }
        await chain_rows.append(tx, stored)
        await chain_rows.change(tx, chain.id, **changed)
        return replace(chain, **changed)

    async def _insert(self, tx: Tx, chain: Chain, stored: Sequence[StoredBlock]) -> None:
        await chain_rows.insert(tx, chain)
        await chain_rows.append(tx, stored)
        await session_rows.change(tx, chain.session_id, latest_chain_id=chain.id, updated_at=chain.created_at)


def attach_conflict(chain_id: str) -> GatewayError:
    """A chain has one run at a time."""
    text = f"{chain_id} has a run that has not ended; wait for it, cancel it, or fork the chain"
    return conflict("chain.attach_conflict", text, retryable=True)


def chain_closed(chain_id: str) -> GatewayError:
    return conflict("chain.closed", f"{chain_id} is closed; fork or reopen it")


def _cuts_a_call(stored: Sequence[StoredBlock]) -> bool:
    """Whether a tool call has no result in these blocks."""
    ids: dict[str, set[Any]] = {"tool_call": set(), "tool_result": set()}
    for block in stored:
        if block.kind in ids:
            ids[block.kind].add(decode_block(block)["tool_call_id"])
    return ids["tool_call"] != ids["tool_result"]
