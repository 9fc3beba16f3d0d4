"""One run: a world under load, faults, the repair, and the checker."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.faults.checker import LOST, REFUSED, RUN, STEPS, SUCCEEDED, Gap, History, check
from tests.faults.faults import FAULTS, MOVES, Fault
from tests.faults.workload import SINGLETON, Workload
from tests.faults.world import LEASE, World

AT_ONCE = (2, 4)
"""Faults in one random run."""

SETTLED = 60.0
"""Seconds after the last fault until nothing may be at work."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a run."""

    violations: list[str]
    line: str
    requests: int


def run(folder: Path, seed: int, names: Sequence[str] = ()) -> Result:
    """Random faults, one after the other, of which one moves the singleton; with `names`, these alone."""
    dice = random.Random(seed)
    choice = [fault for fault in FAULTS + MOVES if fault.__name__ in names] if names else FAULTS
    faults = [dice.choice(choice) for _ in range(dice.randint(*AT_ONCE))]
    if not names:
        faults.insert(dice.randint(0, len(faults)), dice.choice(MOVES))
    begun = time.monotonic()
    history, violations, seen = History(), [], ["no more"]
    try:
        with World(folder) as world:
            load = Workload(world, seed)
            load.prepare()
            violations = harm(world, load, faults, dice)
            history, seen = load.history, [describe(load.history) for describe in (describe_runs, describe_watched)]
            seen.insert(0, describe_singleton(load))
    except Exception as error:
        violations = [*violations, f"the run did not end: {error!r}"]
    told = Counter(request.status for request in history.requests)
    parts = [f"seed {seed}", " + ".join(fault.__name__ for fault in faults), f"{len(history.requests)} requests"]
    failed = told["failed"] + told["retryable_failure"]
    parts += [f"{told[SUCCEEDED]} succeeded, {failed} failed, {told[REFUSED]} refused, {told[LOST]} lost"]
    parts += [*seen, f"{len(violations)} violations", f"{time.monotonic() - begun:.0f} s"]
    return Result(violations, "; ".join(parts), len(history.requests))


def describe_singleton(load: Workload) -> str:
    """How much of I4 a run has exercised."""
    history = load.history
    acts = sorted(history.acts, key=lambda act: act.begun)
    holders = len({act.holder for act in acts})
    silence = max((later.begun - earlier.ended for earlier, later in pairwise(acts)), default=0.0)
    epochs = len({write.epoch for write in history.accepted})
    waited = max((wait.until - wait.since for wait in history.awaited), default=0.0)
    calls = [request for request in history.requests if request.kind == SINGLETON]
    told = Counter(str(call.failure.get("code", call.code)) or SUCCEEDED for call in calls)
    parts = [f"{len(acts)} acts of {holders} holders", f"silent for {silence:.1f} s at most"]
    parts += [f"again after {waited:.1f} s", f"{len(history.accepted)} writes in {epochs} epochs"]
    parts += [f"{load.refused_writes} refused", f"calls: {' '.join(f'{n} {what}' for what, n in told.most_common())}"]
    return ", ".join(parts)


def describe_runs(history: History) -> str:
    """How much of the second half of I7 a run has exercised."""
    ended = Counter(run["status"] for run in history.rows.runs)
    told = Counter(request.code for request in history.requests if request.kind == RUN and request.status == REFUSED)
    parts = [
        f"{len(history.rows.runs)} runs on {len(history.rows.chains)} chains with {len(history.rows.blocks)} blocks"
    ]
    parts += [f"{n} {status}" for status, n in ended.most_common()]
    parts += [f"refused: {' '.join(f'{n} {code}' for code, n in told.most_common()) or 'none'}"]
    return ", ".join(parts)


def describe_watched(history: History) -> str:
    """How much of the second half of I8 a run has exercised."""
    items = [item for watch in history.watched for item in watch.seen]
    gaps = sum(isinstance(item, Gap) for item in items)
    gateway_of = {request.invocation: request.gateway for request in history.requests if request.kind == STEPS}
    elsewhere = sum(gateway_of.get(watch.work, watch.gateway) != watch.gateway for watch in history.watched)
    whole = sum(watch.total is not None for watch in history.watched)
    parts = [
        f"{len(history.watched)} watched",
        f"{elsewhere} invocations of the other gateway",
        f"{whole} to their end",
    ]
    return ", ".join([*parts, f"{len(items) - gaps} events", f"{gaps} gaps told"])


def harm(world: World, load: Workload, faults: Sequence[Fault], dice: random.Random) -> list[str]:
    """Faults under load, the repair, and what is wrong then."""
    load.begin()
    try:
        for fault in faults:
            time.sleep(dice.uniform(0.5, 1.5))
            fault(world, dice)
            world.restart_ended()
        time.sleep(0.5)
    finally:
        load.stop()
    return finish(world, load)


def finish(world: World, load: Workload) -> list[str]:
    """Repair everything, wait until nothing is at work, and tell what is wrong."""
    world.heal()
    healed = time.monotonic()
    load.wait_acting(SETTLED)
    load.wait_served()
    load.join()
    load.settle(SETTLED)
    load.history.orphans = world.orphans()
    # A holder that could not renew its lease in time has ended by then; another one must act.
    time.sleep(max(0.2, healed + LEASE - time.monotonic()))
    load.wait_acting(SETTLED)
    return [*check(load.witness()), *(f"logged: {line}" for line in world.errors())]
