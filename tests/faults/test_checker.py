"""The checker finds a violation of each invariant, and none in a history that keeps them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.checker import (
    BEGUN,
    EMPTY,
    HOOK,
    LOST,
    READ,
    REFUSED,
    RUN,
    STEPS,
    WRITE,
    Accepted,
    Act,
    Awaited,
    ChainSeen,
    Entry,
    Gap,
    History,
    KeyUse,
    Orphan,
    Request,
    Rows,
    RunChange,
    RunSeen,
    Watched,
    check,
)

UNASKED = {"code": "unavailable", "detail": {"asked": False}}
UNKNOWN = {"code": "crashed", "detail": {"execution_outcome": "unknown"}}
BOTH = {"code": "crashed", "detail": {"asked": False, "execution_outcome": "unknown"}}


def row(id: str, status: str | None = "succeeded", **fields: Any) -> dict[str, Any]:
    ended = None if status is None else 2.0
    return {"id": id, "status": status, "started_at": 1.0, "ended_at": ended, "export_id": "t", **fields}


def delivery(id: str, event: str, status: str = "delivered", **fields: Any) -> dict[str, Any]:
    return {"id": id, "event_id": event, "status": status, "completed_at": 3.0, **fields}


def blocks_of(chain: str, *blocks: tuple[str | None, str, str | None]) -> list[dict[str, Any]]:
    """Blocks of a run, a kind and the id of a tool call."""
    made, digest = [], EMPTY
    for at, (run, kind, call) in enumerate(blocks):
        body = f"{at} {kind}".encode()
        digest = hashlib.sha256(digest.encode() + body).hexdigest()
        made.append({"chain_id": chain, "run_id": run, "kind": kind, "call": call, "body": body, "digest": digest})
    return made


def run(id: str, request: str, status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"id": id, "chain_id": "c1", "status": status, "request": request, "events": 1, **fields}


def good() -> History:
    """A history with everything in it, and nothing wrong."""
    history = History()
    history.ledger = [
        Entry(WRITE, "w1", "i1", 1.0),
        Entry(WRITE, "w3", "i3", 1.0),
        Entry(WRITE, "w4", "i4", 1.0),
        Entry(READ, "r1", "i5", 1.0),
        Entry(READ, "r1", "i6", 1.1),
        Entry(HOOK, "d1", "i7", 1.0),
        Entry(HOOK, "d1", "i8", 1.5),
    ]
    history.requests = [
        Request(WRITE, "w1", 0.0, 1.0, "succeeded", invocation="i1"),
        Request(WRITE, "w2", 0.0, 1.0, "failed", failure=UNASKED, invocation="i2"),
        Request(WRITE, "w3", 0.0, 1.0, "failed", failure=UNKNOWN, invocation="i3"),
        Request(WRITE, "w4", 0.0, 1.0, LOST, key="k1"),
        Request(WRITE, "w4", 1.0, 2.0, REFUSED, key="k1", code="idempotency.in_progress"),
        Request(WRITE, "w4", 2.0, 3.0, "succeeded", key="k1", invocation="i4"),
        Request(WRITE, "w5", 2.0, 3.0, REFUSED, code="store.unavailable", retry_after="1"),
        Request(READ, "r1", 0.0, 1.0, "succeeded", invocation="i6"),
        Request(READ, "r2", 0.0, 1.0, BEGUN, invocation="i9"),
    ]
    statuses = {"i2": "failed", "i3": "failed", "i5": "retryable_failure", "i9": "failed"}
    history.rows = Rows(
        invocations=[row(f"i{n}", statuses.get(f"i{n}", "succeeded")) for n in range(1, 10)],
        tokens=[
            {"invocation_id": "i1", "revoked_at": 2.0, "expires_at": 99.0},
            {"invocation_id": "i2", "revoked_at": None, "expires_at": 5.0},
        ],
        events=[{"id": "e1"}, {"id": "e2"}],
        deliveries=[delivery("d1", "e1"), delivery("d2", "e2", "pending", completed_at=None)],
        now=10.0,
    )
    history.promised = {"d1", "d2"}
    history.closed = {"i1": "succeeded"}
    history.revoked = {"k": 5.0}
    history.uses = [KeyUse("k", 4.0, True), KeyUse("k", 4.9, True), KeyUse("k", 5.1, False), KeyUse("l", 9.0, True)]
    history.acts = [
        Act("s", "n1/7", 0.0, 1.0),
        Act("s", "n1/7", 0.5, 2.0),
        Act("s", "n2/8", 1.95, 3.0),
        Act("s", "n1/9", 4.0, 4.1),
        Act("s", "n1/9", 5.0, 5.1),
    ]
    history.accepted = [
        Accepted("s", 1, "n1/7", "n1", "7-1"),
        Accepted("s", 1, "n1/7", "n1", "7-2"),
        Accepted("s", 2, "n2/8", "n2", "8-1"),
        Accepted("t", 1),
    ]
    history.acknowledged = {"7-1", "8-1"}
    history.awaited = [Awaited("s", 3.5, 4.5), Awaited("s", 4.5, 9.0)]
    add_runs(history)
    history.ledger += [Entry(STEPS, "s1", "i1", 2.0)]
    history.watched = [
        Watched("i1", "g1", 1.0, (0, 1, 2), 3),
        Watched("i1", "g2", 1.0, (Gap(1), Gap(1), 2), 3),
        Watched("i1", "g1", 1.0, (0, Gap(None), Gap(None), 2, Gap(1)), 4),
        Watched("i1", "g2", 2.5, (1, 2)),
        Watched("run1", "g2", 1.0, (5, Gap(3), 7)),
        Watched("run1", "g1", 1.0, (), 9),
    ]
    return history


def add_runs(history: History) -> None:
    """Runs of two chains, and what clients saw of both."""
    of_first = [("run1", "input", None), ("run1", "tool_call", "t1"), ("run1", "tool_result", "t1")]
    history.rows.blocks = blocks = blocks_of("c1", (None, "system", None), *of_first, ("run2", "response", None))
    last = blocks[-1]["digest"]
    history.rows.chains = [
        {"id": "c1", "status": "idle", "block_count": 5, "digest": last},
        {"id": "c2", "status": "idle", "block_count": 0, "digest": EMPTY},
    ]
    history.rows.runs = [run("run1", "q1"), run("run2", "q2", "failed"), run("run3", "q5", "cancelled", chain_id="c2")]
    history.requests += [
        Request(RUN, "q1", 0.0, 1.0, BEGUN),
        Request(RUN, "q2", 0.0, 1.0, REFUSED, key="q2", code="chain.attach_conflict"),
        Request(RUN, "q2", 1.0, 2.0, BEGUN, key="q2"),
        Request(RUN, "q2", 2.0, 3.0, BEGUN, key="q2"),
        Request(RUN, "q3", 0.0, 1.0, REFUSED, code="chain.attach_conflict"),
        Request(RUN, "q5", 0.0, 1.0, REFUSED, code="store.unavailable", retry_after="1"),
    ]
    history.runs = [RunSeen("q1", "c1", "run1", "queued"), RunSeen("q1", "c1", "run1", "completed")]
    history.run_changes = [
        RunChange("c1", "run1", "queued"),
        RunChange("c2", "run3", "queued"),
        RunChange("c1", "run1", "running"),
        RunChange("c1", "run1", "completed"),
        RunChange("c1", "run2", "queued"),
        RunChange("c2", "run3", "cancelled"),
        RunChange("c1", "run2", "failed"),
    ]
    history.chains = [ChainSeen("c1", 5, last), ChainSeen("c1", 2, blocks[1]["digest"]), ChainSeen("c2", 0, EMPTY)]


def test_a_history_that_keeps_all_promises_has_no_violation() -> None:
    assert check(good()) == []


def add(name: str, *items: Any) -> Callable[[History], None]:
    """Seed a violation by more of something."""
    return lambda history: getattr(history, name).extend(items)


def change(table: str, id: str, **fields: Any) -> Callable[[History], None]:
    """Seed a violation in a row of the database."""

    def seed(history: History) -> None:
        found = next(each for each in getattr(history.rows, table) if each.get("id", each.get("invocation_id")) == id)
        found.update(fields)

    return seed


def change_block(at: int, **fields: Any) -> Callable[[History], None]:
    return lambda history: history.rows.blocks[at].update(fields)


def remove(table: str, id: str) -> Callable[[History], None]:
    def seed(history: History) -> None:
        kept = [each for each in getattr(history.rows, table) if each["id"] != id]
        setattr(history.rows, table, kept)

    return seed


SEEDED: list[tuple[str, Callable[[History], object]]] = [
    ("I0", add("requests", Request(READ, "r9", 0.0, 1.0, REFUSED, code="api.internal"))),
    ("I0", add("requests", Request(READ, "r9", 0.0, 1.0, "failed", failure={"code": "internal"}))),
    ("I0", add("requests", Request(READ, "r9", 0.0, 1.0, REFUSED, code="store.unavailable"))),
    ("I1", add("ledger", Entry(WRITE, "w1", "i1", 2.0))),
    ("I1", add("requests", Request(WRITE, "w8", 0.0, 1.0, "succeeded"))),
    ("I1", add("ledger", Entry(WRITE, "w2", "i2", 2.0))),
    ("I1", add("ledger", Entry(WRITE, "w5", "i2", 2.0))),
    ("I1", add("requests", Request(WRITE, "w9", 0.0, 1.0, "failed", failure=BOTH))),
    ("I2", add("ledger", Entry(READ, "r1", "i1", 2.0), Entry(READ, "r1", "i1", 2.0))),
    ("I2", add("requests", Request(READ, "r7", 0.0, 1.0, "succeeded"))),
    ("I3", remove("deliveries", "d1")),
    ("I3", remove("events", "e1")),
    ("I3", change("deliveries", "d1", status="delivering")),
    ("I3", lambda history: history.promised.add("d3")),
    ("I3", add("ledger", Entry(HOOK, "d1", "i9", 9.0))),
    ("I3", change("deliveries", "d2", status="delivered")),
    ("I4: s accepted a write of epoch 1 after one of 2", add("accepted", Accepted("s", 1))),
    ("I4: n1/7 of epoch 1 wrote as s in epoch 2", add("accepted", Accepted("s", 2, "n1/7", "n1"))),
    ("I4: n3/5 wrote as s while the lease was with n2", add("accepted", Accepted("s", 2, "n3/5", "n2"))),
    ("I4: the write 7-3 was said to be accepted, and is not there", lambda history: history.acknowledged.add("7-3")),
    ("I4: n1/7 and n2/8 acted as s at the same time", add("acts", Act("s", "n1/7", 2.5, 2.6))),
    ("I4: n2/8 and n1/9 acted as s at the same time", add("acts", Act("s", "n2/8", 5.2, 5.21))),
    ("I4: s does not act after the repair", add("awaited", Awaited("s", 5.05, 9.0))),
    ("I4: s does not act after the repair", add("awaited", Awaited("s", 4.2, 4.9))),
    ("I4: t does not act after the repair", add("awaited", Awaited("t", 0.0, 9.0))),
    ("I5", change("invocations", "i1", status=None, ended_at=None)),
    ("I5", change("invocations", "i1", status="failed")),
    ("I5", remove("invocations", "i1")),
    ("I5", change("invocations", "i6", status="failed")),
    ("I5", change("tokens", "i1", revoked_at=None)),
    ("I6", add("uses", KeyUse("k", 5.001, True))),
    ("I7", add("requests", Request(WRITE, "w4", 0.0, 1.0, "failed", key="k1", invocation="i4"))),
    ("I7", add("requests", Request(WRITE, "w1", 0.0, 1.0, LOST, key="k1"))),
    ("I7: run2 was queued on c1 before run1 had ended", lambda history: history.run_changes.pop(3)),
    ("I7: the run run1 was completed, and running later", add("run_changes", RunChange("c1", "run1", "running"))),
    ("I7: the chain c1 is still running", change("chains", "c1", status="running")),
    ("I7: the request q1 made 2 runs", change("runs", "run2", request="q1")),
    ("I7: the request q3 was refused (chain.attach_conflict), and made a run", change("runs", "run2", request="q3")),
    ("I7: the run run2 is still queued", change("runs", "run2", status="queued")),
    ("I7: the run run2 is failed and has 0 events", change("runs", "run2", events=0)),
    ("I7: q1 was answered with run1 on c1", change("runs", "run1", chain_id="c2")),
    ("I7: q2 was answered with run9 on c1", add("runs", RunSeen("q2", "c1", "run9", "queued"))),
    ("I7: the run run1 was completed for a client, and is failed", change("runs", "run1", status="failed")),
    ("I7: the chain c1 has 5 blocks", change("chains", "c1", block_count=4)),
    ("I7: the chain c1 has 4 blocks", lambda history: history.rows.blocks.pop()),
    ("I7: a block of the chain c1 is not the one of its digest", change_block(2, body=b"another")),
    ("I7: the chain c1 has the calls ['t1'] with the results ['t2']", change_block(3, call="t2")),
    ("I7: blocks of several runs are mixed in the chain c1", change_block(2, run_id="run2")),
    ("I7: the first 2 blocks of c1 had the digest x", add("chains", ChainSeen("c1", 2, "x"))),
    ("I7: the first 9 blocks of c1 had the digest x", add("chains", ChainSeen("c1", 9, "x"))),
    ("I8", add("orphans", Orphan("n1", 4711, 5.0))),
    (
        "I8: a client of g1 that watched i1 saw the event 1 after 1",
        add("watched", Watched("i1", "g1", 1.0, (0, 1, 1))),
    ),
    ("I8: a client of g1 that watched i9 saw the event 1 after 2", add("watched", Watched("i9", "g1", 1.0, (2, 1)))),
    (
        "I8: a client of g1 that watched i1 saw 2 where 1 was due",
        add("watched", Watched("i1", "g1", 1.0, (0, 2, Gap(1)))),
    ),
    ("I8: a client of g1 that watched i1 saw 1 where 0 was due", add("watched", Watched("i1", "g1", 1.0, (1,)))),
    (
        "I8: a client of g1 that watched i1 saw 3 where 1 was due",
        add("watched", Watched("i1", "g1", 1.0, (0, Gap(1), 3))),
    ),
    (
        "I8: a client of g1 that watched i9 saw 4 where 2 was due",
        add("watched", Watched("i9", "g1", 1.0, (0, 1), 4)),
    ),
]


@pytest.mark.parametrize(("invariant", "seed"), SEEDED, ids=[f"{name}-{at}" for at, (name, _) in enumerate(SEEDED)])
def test_a_seeded_violation_is_found(invariant: str, seed: Callable[[History], object]) -> None:
    history = good()
    late = history.rows.invocations[-1]
    late["started_at"] = 9.0
    assert check(history) == [], "the invocation i9 begins late, which is no violation"
    seed(history)
    found = check(history)
    assert any(each.startswith(invariant) for each in found), found
