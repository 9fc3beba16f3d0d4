"""One run: a world under load, faults, the repair, and the checker."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.checker import LOST, REFUSED, SUCCEEDED, History, check
from tests.faults.faults import FAULTS, Fault
from tests.faults.workload import Workload
from tests.faults.world import World

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
    """Random faults, one after the other; with `names`, these alone."""
    dice = random.Random(seed)
    choice = [fault for fault in FAULTS if not names or fault.__name__ in names]
    faults = [dice.choice(choice) for _ in range(dice.randint(*AT_ONCE))]
    begun = time.monotonic()
    history, violations = History(), []
    try:
        with World(folder) as world:
            load = Workload(world, seed)
            load.prepare()
            violations = harm(world, load, faults, dice)
            history = load.history
    except Exception as error:
        violations = [*violations, f"the run did not end: {error!r}"]
    told = Counter(request.status for request in history.requests)
    parts = [f"seed {seed}", " + ".join(fault.__name__ for fault in faults), f"{len(history.requests)} requests"]
    failed = told["failed"] + told["retryable_failure"]
    parts += [f"{told[SUCCEEDED]} succeeded, {failed} failed, {told[REFUSED]} refused, {told[LOST]} lost"]
    parts += [f"{len(violations)} violations", f"{time.monotonic() - begun:.0f} s"]
    return Result(violations, "; ".join(parts), len(history.requests))


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
    load.wait_served()
    load.join()
    load.settle(SETTLED)
    load.history.orphans = world.orphans()
    time.sleep(0.2)
    return [*check(load.witness()), *(f"logged: {line}" for line in world.errors())]
