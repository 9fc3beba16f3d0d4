"""What every machine shares: the outgoing buffer, the table, and what is a bug of ours."""

from __future__ import annotations

from typing import ClassVar

import pytest

from plugbay.contracts.base import Machine, Misuse, Role, Traffic
from plugbay.contracts.registry import CONTRACTS
from plugbay.model.errors import Code, Failure
from plugbay.model.events import Fault
from plugbay.wire.strict_json import stdlib_codec

MACHINES = {contract.name: contract.machine() for contract in CONTRACTS.values()}


class Tiny(Machine):
    __slots__ = ()
    CONTRACT: ClassVar[str] = "tiny"
    TRANSITIONS: ClassVar[dict[tuple[str, str, str], str]] = {
        (Role.HOST, "start", "go"): "gone",
        (Role.HOST, "start", "violation"): "failed",
    }


def tiny() -> Tiny:
    return Tiny(Role.HOST, stdlib_codec())


def test_outgoing_hands_over_everything_once() -> None:
    machine = tiny()
    machine._out += [b"a", b"b"]
    assert machine.outgoing() == b"ab"
    assert machine.outgoing() == b""


def test_a_step_that_is_not_in_the_table_is_our_own_bug() -> None:
    machine = tiny()
    machine._step("go")
    assert machine.state == "gone"
    with pytest.raises(Misuse, match="tiny host: 'go' is not possible in 'gone'"):
        machine._step("go")


def test_a_fault_is_reported_once_and_remembered_in_the_state() -> None:
    machine = tiny()
    failure = Failure(Code.MALFORMED_RESPONSE, "x")
    assert machine._fault(failure) == [Fault(failure)]
    assert machine.state == "failed"


def test_traffic_drops_the_newest_of_64_unless_a_contract_says_otherwise() -> None:
    traffic = Traffic()
    assert (traffic.capacity, traffic.drops, traffic.max_bytes) == (64, "newest", None)
    assert (traffic.urgent, traffic.urgent_capacity) == ((), 64)


def test_a_good_bye_is_answered_unless_a_contract_says_otherwise() -> None:
    assert Machine.GOOD_BYE_IS_ANSWERED is True


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
def test_every_contract_overrides_every_method_of_the_machine(machine: type[Machine]) -> None:
    verbs = "receive receive_eof greet call notify cancel finish progress close".split()
    assert [verb for verb in verbs if getattr(machine, verb) is getattr(Machine, verb)] == []


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
def test_every_machine_knows_whether_a_message_has_begun(machine: type[Machine]) -> None:
    peer = machine(Role.HOST, stdlib_codec())
    assert peer.pending == 0
    peer.receive(b"Content-Le")  # the beginning of a line, or of a header
    assert peer.pending == 10


def test_a_machine_that_does_not_know_it_says_so() -> None:
    with pytest.raises(NotImplementedError):
        tiny().pending  # noqa: B018


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
def test_every_table_starts_somewhere_and_can_reach_each_of_its_states(machine: type[Machine]) -> None:
    for role in (Role.HOST, Role.PLUGIN):
        moves = {(state, target) for (who, state, _), target in machine.TRANSITIONS.items() if who == role}
        reached = {machine.FIRST_STATE}
        while grown := {target for state, target in moves if state in reached} - reached:
            reached |= grown
        assert reached == {state for move in moves for state in move}
