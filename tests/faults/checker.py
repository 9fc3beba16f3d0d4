"""The invariants of a cluster, checked on the history of a run. Pure: values in, violations out.

Three witnesses: the ledger, which plugins write before they answer (the world as it was); what clients saw; the rows of
the database in the end. `docs/scale.md` and `docs/nodes.md` promise what is checked here.

| | |
|---|---|
| I0 | no answer is an internal error; one that asks for patience has `Retry-After` |
| I1 | a `non_idempotent_write` has at most one entry in the ledger; one if it succeeded; none if it was refused |
| I2 | a repeatable execution has at least one entry if it succeeded, and at most three |
| I3 | each event has its deliveries; each is ended or due; none is delivered twice, or again after it was delivered |
| I4 | of a singleton, writes are accepted from the holder only, their epochs never fall, and they are kept |
| | two holders never act at the same time, and one acts again after the repair |
| I5 | each invocation is closed, once, and as its client was told; no token works in the end |
| I6 | no request that began after the answer to a revocation is accepted with the revoked key |
| I7 | one `Idempotency-Key` has one execution and one answer, through any gateways |
| | a chain has one unended run at a time; a request makes one run at most, which ends once, with one event, as told |
| | the blocks of a chain stay, so the digest of its first blocks never changes; a tool call has its result |
| I8 | no plugin process outlives its node or gateway |
| | a client that watches live has events in order, and was told of a gap before the next event, or the end, after it |
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

WRITE, READ, HOOK = "write", "read", "hook"
"""What an entry or a request is about: a tool that must not run twice, one that may, a delivery."""
STEPS, RUN = "steps", "run"
"""The same: a tool that sends events, noted before the first of them; a run on a chain that clients share."""

SUCCEEDED, REFUSED, LOST, BEGUN = "succeeded", "refused", "lost", "begun"
"""What a client was told. Refused: an error was the answer, so nothing was begun; lost: there was no answer."""
INTERNAL = "internal"
LATER = frozenset({"store.unavailable", "server.stopping", "package.not_published"})
"""Refusals that must have the header `Retry-After`."""
DELIVERED = "delivered"
ENDED = frozenset({DELIVERED, "failed", "dead_letter", "dropped"})
UNENDED = frozenset({"queued", "running"})
"""Of runs."""
UNKNOWN = frozenset({"store.unavailable"})
"""Refusals after which a change may be there all the same: a commit without an answer."""
EMPTY = "0" * 64
"""The digest of a chain without blocks."""
MAX_ATTEMPTS = 3

OVERLAP = 0.1
"""Seconds for which two holders of a singleton may act at the same time: after a suspension, by two processes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the ledger: a plugin was asked."""

    kind: str
    execution: str
    """Of a hook, the delivery."""
    invocation: str
    at: float
    """By a monotonic clock of the machine."""
    holder: str = ""
    epoch: int = 0
    boot: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked, and what it was told."""

    kind: str
    execution: str
    begun: float
    ended: float
    status: str
    """The one of the invocation, or one of `REFUSED`, `LOST` and `BEGUN`."""
    key: str = ""
    """The `Idempotency-Key`."""
    failure: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""
    """Of the error, if it was refused."""
    invocation: str = ""
    """The last attempt."""
    gateway: str = ""
    retry_after: str = ""
    """The header of a refusal."""

    @property
    def was_not_asked(self) -> bool:
        return bool(self.failure.get("detail", {}).get("asked") is False)

    @property
    def is_unknown(self) -> bool:
        return bool(self.failure.get("detail", {}).get("execution_outcome") == "unknown")


@dataclass(frozen=True, slots=True)
class KeyUse:
    """A request with an API key: whether it was accepted."""

    key: str
    begun: float
    accepted: bool


@dataclass(frozen=True, slots=True)
class Act:
    """A holder of a singleton did something outside."""

    name: str
    holder: str
    """One process: when another holder has acted, it may not act again."""
    begun: float
    ended: float


@dataclass(frozen=True, slots=True)
class Accepted:
    """The store accepted a write of a singleton; in the order of the commits."""

    name: str
    epoch: int
    """Of the lease, in the transaction of the write."""
    holder: str = ""
    """The process that wrote, after the name of its node and a slash."""
    node: str = ""
    """The node that had the lease."""
    write: str = ""
    """The id."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """After the repair nothing hindered a singleton for so long, so an act of it must begin in this time."""

    name: str
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class Orphan:
    """A plugin process without its node or gateway."""

    owner: str
    pid: int
    seconds: float
    """So long after the end of its owner."""


@dataclass(frozen=True, slots=True)
class RunSeen:
    """An answer to a client had a run in it."""

    request: str
    """What the client calls the request that made it; one name for all repetitions."""
    chain: str
    run: str
    status: str


@dataclass(frozen=True, slots=True)
class RunChange:
    """A run was made, or its status changed; in the order of the commits of its chain."""

    chain: str
    run: str
    status: str


@dataclass(frozen=True, slots=True)
class ChainSeen:
    """An answer to a client had a chain in it."""

    chain: str
    blocks: int
    digest: str


@dataclass(frozen=True, slots=True)
class Gap:
    """A client was told that it does not see so many events; None: that there may be some."""

    events: int | None


@dataclass(frozen=True, slots=True)
class Watched:
    """What a client saw live of an invocation or a run, through any gateway."""

    work: str
    gateway: str
    begun: float
    """It had the record by then, so it sees what happens later."""
    seen: tuple[int | Gap, ...]
    """The numbers of the events, which begin with 0, and the gaps that it was told of."""
    total: int | None = None
    """The number of all events, if it saw an end that comes after all of them."""


@dataclass(slots=True)
class Rows:
    """The database in the end; each row by the names of its columns."""

    invocations: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    deliveries: list[dict[str, Any]] = field(default_factory=list)
    chains: list[dict[str, Any]] = field(default_factory=list)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    """By chain, in their order."""
    runs: list[dict[str, Any]] = field(default_factory=list)
    """With the number of their events, and what the client calls the request."""
    now: float = 0.0


@dataclass(slots=True)
class History:
    """Everything that is known of a run."""

    ledger: list[Entry] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    rows: Rows = field(default_factory=Rows)
    revoked: dict[str, float] = field(default_factory=dict)
    """By key: when the answer to its revocation came."""
    uses: list[KeyUse] = field(default_factory=list)
    acts: list[Act] = field(default_factory=list)
    accepted: list[Accepted] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)
    """The ids of writes that holders of singletons were told to be accepted."""
    awaited: list[Awaited] = field(default_factory=list)
    orphans: list[Orphan] = field(default_factory=list)
    promised: set[str] = field(default_factory=set)
    """The ids of deliveries that clients were given."""
    closed: dict[str, str] = field(default_factory=dict)
    """Ends of invocations that were seen earlier, by id: they must not change."""
    runs: list[RunSeen] = field(default_factory=list)
    run_changes: list[RunChange] = field(default_factory=list)
    chains: list[ChainSeen] = field(default_factory=list)
    watched: list[Watched] = field(default_factory=list)


def check(history: History) -> list[str]:
    """The violations; none is what we want."""
    rules = (
        no_internal_errors,
        at_most_once,
        repeatable,
        deliveries,
        singletons,
        closed_once,
        revoked_keys,
        one_change_per_key,
        one_run_at_a_time,
        one_run_per_request,
        runs_as_told,
        blocks_stay,
        no_orphans,
        in_order,
    )
    return [violation for rule in rules for violation in rule(history)]


def _entries(history: History, kind: str) -> Counter[str]:
    return Counter(entry.execution for entry in history.ledger if entry.kind == kind)


def _requests(history: History, kind: str) -> Iterator[Request]:
    return (request for request in history.requests if request.kind == kind)


def no_internal_errors(history: History) -> Iterator[str]:
    """I0."""
    for request in history.requests:
        if INTERNAL in request.code or request.failure.get("code") == INTERNAL:
            yield f"I0: {request.execution} was answered with {request.code or request.failure.get('message')}"
        if request.code in LATER and not request.retry_after:
            yield f"I0: {request.execution} was refused with {request.code}, and not told when to try again"


def at_most_once(history: History) -> Iterator[str]:
    """I1."""
    entries = _entries(history, WRITE)
    for execution, count in entries.items():
        if count > 1:
            yield f"I1: the write {execution} was carried out {count} times"
    for request in _requests(history, WRITE):
        count = entries[request.execution]
        if request.status == SUCCEEDED and count != 1:
            yield f"I1: the write {request.execution} succeeded and was carried out {count} times"
        if request.was_not_asked and count:
            yield f"I1: the write {request.execution} was said not to be asked, and was carried out"
        if request.status == REFUSED and not request.key and count:
            yield f"I1: the write {request.execution} was refused ({request.code}), and was carried out"
        if request.was_not_asked and request.is_unknown:
            yield f"I1: the write {request.execution} was not asked, and its outcome is unknown"


def repeatable(history: History) -> Iterator[str]:
    """I2."""
    entries = _entries(history, READ)
    for execution, count in entries.items():
        if count > MAX_ATTEMPTS:
            yield f"I2: {execution} was carried out {count} times"
    for request in _requests(history, READ):
        if request.status == SUCCEEDED and not entries[request.execution]:
            yield f"I2: {request.execution} succeeded and was never carried out"


def deliveries(history: History) -> Iterator[str]:
    """I3."""
    rows = history.rows
    events = {event["id"] for event in rows.events}
    known = {delivery["id"]: delivery for delivery in rows.deliveries}
    with_deliveries = {delivery["event_id"] for delivery in rows.deliveries}
    for event in sorted(events - with_deliveries):
        yield f"I3: the event {event} has no delivery"
    for id, delivery in known.items():
        if delivery["event_id"] not in events:
            yield f"I3: the delivery {id} has no event"
        if delivery["status"] not in ENDED and delivery["status"] != "pending":
            yield f"I3: the delivery {id} is neither ended nor due: {delivery['status']}"
    for id in sorted(history.promised - known.keys()):
        yield f"I3: the delivery {id} was promised and is not there"
    asked = _entries(history, HOOK)
    for id, delivery in known.items():
        if delivery["status"] == DELIVERED and not asked[id]:
            yield f"I3: {id} is delivered, and its hook was never asked"
        for entry in history.ledger:
            if entry.kind == HOOK and entry.execution == id and _is_after(entry, delivery, history):
                yield f"I3: the hook of {id} was asked again after it was delivered, by {entry.invocation}"


def _is_after(entry: Entry, delivery: Mapping[str, Any], history: History) -> bool:
    """Whether a hook was asked by an invocation that began after the delivery was complete."""
    done = delivery.get("completed_at")
    if delivery["status"] != DELIVERED or done is None:
        return False
    begun = next((row["started_at"] for row in history.rows.invocations if row["id"] == entry.invocation), None)
    return begun is not None and begun > done


def singletons(history: History) -> Iterator[str]:
    """I4."""
    yield from dict.fromkeys(_writes(history))
    by_name: dict[str, list[Act]] = defaultdict(list)
    for act in history.acts:
        by_name[act.name].append(act)
    for name, acts in by_name.items():
        for earlier, later in _overlaps(acts):
            yield f"I4: {earlier.holder} and {later.holder} acted as {name} at the same time"
    for wait in history.awaited:
        if not any(wait.since < act.begun < wait.until for act in by_name[wait.name]):
            yield f"I4: {wait.name} does not act after the repair, for {wait.until - wait.since:.1f} s"


def _writes(history: History) -> Iterator[str]:
    highest: dict[str, int] = {}
    epochs: dict[tuple[str, str], int] = {}
    for write in history.accepted:
        if write.epoch < highest.get(write.name, 0):
            yield f"I4: {write.name} accepted a write of epoch {write.epoch} after one of {highest[write.name]}"
        highest[write.name] = max(write.epoch, highest.get(write.name, 0))
        if not write.holder:
            continue
        own = epochs.setdefault((write.name, write.holder), write.epoch)
        if own != write.epoch:
            yield f"I4: {write.holder} of epoch {own} wrote as {write.name} in epoch {write.epoch}"
        # A lease may be given back beside a write: the next holder waits for the end of that transaction.
        if write.node and not write.holder.startswith(f"{write.node}/"):
            yield f"I4: {write.holder} wrote as {write.name} while the lease was with {write.node}"
    for write_id in sorted(history.acknowledged - {write.write for write in history.accepted}):
        yield f"I4: the write {write_id} was said to be accepted, and is not there"


def _overlaps(acts: Iterable[Act]) -> Iterator[tuple[Act, Act]]:
    """Pairs of holders of whom one acted before the other had ended. Acts are short: whole times of holders count."""
    spans: dict[str, Act] = {}
    for act in acts:
        known = spans.get(act.holder, act)
        spans[act.holder] = replace(act, begun=min(act.begun, known.begun), ended=max(act.ended, known.ended))
    last: Act | None = None
    for span in sorted(spans.values(), key=lambda span: span.begun):
        if last is not None and last.ended - span.begun > OVERLAP:
            yield last, span
        if last is None or span.ended > last.ended:
            last = span


def closed_once(history: History) -> Iterator[str]:
    """I5."""
    rows = {row["id"]: row for row in history.rows.invocations}
    for id, row in rows.items():
        if row["status"] is None or row["ended_at"] is None:
            yield f"I5: the invocation {id} of {row['export_id']} is still open"
    for id, status in history.closed.items():
        if id in rows and rows[id]["status"] != status:
            yield f"I5: the invocation {id} was {status}, and is {rows[id]['status']} now"
    for request in history.requests:
        if request.invocation and request.invocation not in rows:
            yield f"I5: the invocation {request.invocation} was answered and is not recorded"
        recorded = rows[request.invocation]["status"] if request.invocation in rows else None
        if recorded is not None and not _agree(request.status, recorded):
            yield f"I5: {request.invocation} was {request.status} for its client, and is recorded as {recorded}"
    for token in history.rows.tokens:
        if token["revoked_at"] is None and token["expires_at"] > history.rows.now:
            yield f"I5: a token of the invocation {token['invocation_id']} still works"


def _agree(told: str, recorded: str) -> bool:
    return told in (recorded, LOST, REFUSED, BEGUN)


def revoked_keys(history: History) -> Iterator[str]:
    """I6."""
    for use in history.uses:
        revoked = history.revoked.get(use.key)
        if use.accepted and revoked is not None and use.begun > revoked:
            yield f"I6: the key {use.key} was accepted {use.begun - revoked:.3f} s after its revocation"


def one_change_per_key(history: History) -> Iterator[str]:
    """I7."""
    of_key: dict[str, list[Request]] = defaultdict(list)
    for request in history.requests:
        if request.key:
            of_key[request.key].append(request)
    entries = _entries(history, WRITE)
    for key, requests in of_key.items():
        answers = {(r.invocation, r.status) for r in requests if r.status not in (LOST, REFUSED)}
        if len(answers) > 1:
            yield f"I7: the key {key} has {len(answers)} different answers: {sorted(answers)}"
        carried_out = sum(entries[execution] for execution in {request.execution for request in requests})
        if carried_out > 1:
            yield f"I7: the key {key} was carried out {carried_out} times"


def one_run_at_a_time(history: History) -> Iterator[str]:
    """I7, of a chain."""
    unended: dict[str, str] = {}
    ended: dict[str, str] = {}
    for change in history.run_changes:
        if change.run in ended:
            yield f"I7: the run {change.run} was {ended[change.run]}, and {change.status} later"
        other = unended.get(change.chain, change.run)
        if other != change.run:
            yield f"I7: {change.run} was {change.status} on {change.chain} before {other} had ended"
        if change.status in UNENDED:
            unended[change.chain] = change.run
        else:
            ended[change.run] = change.status
            unended.pop(change.chain, None)
    for chain in history.rows.chains:
        if chain["status"] != "idle":
            yield f"I7: the chain {chain['id']} is still {chain['status']}"


def one_run_per_request(history: History) -> Iterator[str]:
    """I7, of the requests for runs."""
    of_request = Counter(row["request"] for row in history.rows.runs)
    for name, count in of_request.items():
        if count > 1:
            yield f"I7: the request {name} made {count} runs"
    for request in _requests(history, RUN):
        made_none = request.status == REFUSED and not request.key and request.code not in UNKNOWN
        if made_none and of_request[request.execution]:
            yield f"I7: the request {request.execution} was refused ({request.code}), and made a run"


def runs_as_told(history: History) -> Iterator[str]:
    """I7, of the ends of runs."""
    rows = {row["id"]: row for row in history.rows.runs}
    for id, row in rows.items():
        if row["status"] in UNENDED:
            yield f"I7: the run {id} is still {row['status']}"
        elif row["events"] != 1:
            yield f"I7: the run {id} is {row['status']} and has {row['events']} events"
    for told in history.runs:
        row = rows.get(told.run, {"chain_id": "", "request": "", "status": "not there"})
        if (row["chain_id"], row["request"]) != (told.chain, told.request):
            yield f"I7: {told.request} was answered with {told.run} on {told.chain}; recorded: {row}"
        if told.status not in UNENDED and told.status != row["status"]:
            yield f"I7: the run {told.run} was {told.status} for a client, and is {row['status']}"


def blocks_stay(history: History) -> Iterator[str]:
    """I7, of what a chain is made of."""
    blocks: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for block in history.rows.blocks:
        blocks[block["chain_id"]].append(block)
    digests = {chain["id"]: [EMPTY, *_digests(blocks[chain["id"]])] for chain in history.rows.chains}
    for chain in history.rows.chains:
        id, own = chain["id"], digests[chain["id"]]
        if (chain["block_count"], chain["digest"]) != (len(own) - 1, own[-1]):
            yield f"I7: the chain {id} has {len(own) - 1} blocks and the digest {own[-1]}, and says {chain}"
        if [EMPTY, *(block["digest"] for block in blocks[id])] != own:
            yield f"I7: a block of the chain {id} is not the one of its digest"
        calls, results = ([b["call"] for b in blocks[id] if b["kind"] == kind] for kind in ("tool_call", "tool_result"))
        if calls != results:
            yield f"I7: the chain {id} has the calls {calls} with the results {results}"
        if not _is_in_turn([block["run_id"] for block in blocks[id]]):
            yield f"I7: blocks of several runs are mixed in the chain {id}"
    for seen in history.chains:
        if digests.get(seen.chain, [])[seen.blocks : seen.blocks + 1] != [seen.digest]:
            yield f"I7: the first {seen.blocks} blocks of {seen.chain} had the digest {seen.digest}, and not now"


def _digests(blocks: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The digest of a chain after each block."""
    digest = EMPTY
    for block in blocks:
        digest = hashlib.sha256(digest.encode() + block["body"]).hexdigest()
        yield digest


def _is_in_turn(runs: Sequence[str | None]) -> bool:
    """Whether none comes again after another one."""
    return sum(run != before for run, before in zip(runs[1:], runs, strict=False)) < max(len(set(runs)), 1)


def in_order(history: History) -> Iterator[str]:
    """I8, of live events."""
    first = {entry.invocation: entry.at for entry in history.ledger if entry.kind == STEPS}
    for watch in history.watched:
        where = f"a client of {watch.gateway} that watched {watch.work}"
        due = 0 if first.get(watch.work, 0.0) > watch.begun else None
        told: list[int | None] = []
        for item in (*watch.seen, *([] if watch.total is None else [watch.total])):
            if isinstance(item, Gap):
                told.append(item.events)
                continue
            if due is not None and item < due:
                yield f"I8: {where} saw the event {item} after {due - 1}"
            if due is not None and item > due + _told_at_most(told, item):
                yield f"I8: {where} saw {item} where {due} was due, and was told of {told or 'no gap'}"
            due, told = item + 1, []


def _told_at_most(gaps: Iterable[int | None], unknown: int) -> int:
    """How many events may be missing; so many if a number is unknown."""
    return sum(unknown if number is None else number for number in gaps)


def no_orphans(history: History) -> Iterator[str]:
    """I8."""
    for orphan in history.orphans:
        yield f"I8: the process {orphan.pid} lives {orphan.seconds:.1f} s after the end of {orphan.owner}"
