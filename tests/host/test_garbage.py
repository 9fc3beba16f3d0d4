"""The garbage collector of a process that serves calls for long."""

from __future__ import annotations

import gc

from plugbay.host.garbage import THRESHOLD, collect_rarely


class Knot:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_what_exists_is_not_scanned_again_and_cycles_are_still_collected() -> None:
    before = gc.get_threshold()
    gc.disable()
    try:
        collect_rarely()
        assert gc.isenabled() and gc.get_threshold()[0] == THRESHOLD and gc.get_freeze_count() > 1_000
        gc.collect()
        for _ in range(3 * THRESHOLD):
            Knot()
        assert sum(isinstance(each, Knot) for each in gc.get_objects()) < 2 * THRESHOLD
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
        gc.enable()
