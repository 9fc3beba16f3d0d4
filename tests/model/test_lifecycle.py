"""Every (state, trigger) pair is either in the table or refused."""

from __future__ import annotations

from itertools import product

import pytest

from plugbay.model.lifecycle import TRANSITIONS, IllegalMove, State, Trigger, step


@pytest.mark.parametrize(("state", "trigger"), list(product(State, Trigger)))
def test_a_move_is_made_exactly_when_the_table_has_it(state: State, trigger: Trigger) -> None:
    if (state, trigger) in TRANSITIONS:
        assert step(state, trigger) is TRANSITIONS[state, trigger]
    else:
        with pytest.raises(IllegalMove, match=f"no move from {state} on {trigger}"):
            step(state, trigger)


def test_every_state_can_be_reached_from_idle() -> None:
    reached, frontier = {State.IDLE}, [State.IDLE]
    while frontier:
        here = frontier.pop()
        for (state, _), target in TRANSITIONS.items():
            if state is here and target not in reached:
                reached.add(target)
                frontier.append(target)
    assert reached == set(State)


def test_only_an_explicit_reload_or_stop_leaves_quarantine() -> None:
    ways_out = {trigger for state, trigger in TRANSITIONS if state is State.QUARANTINED}
    assert ways_out == {Trigger.RELOADED, Trigger.STOP}


def test_a_child_that_is_reaped_can_be_started_again_and_one_that_is_stopped_cannot() -> None:
    parting = step(State.RUNNING, Trigger.IDLED)
    assert (parting, step(parting, Trigger.RELEASED)) == (State.SHUTTING_DOWN, State.IDLE)
    assert step(step(State.RUNNING, Trigger.STOP), Trigger.GONE) is State.STOPPED
