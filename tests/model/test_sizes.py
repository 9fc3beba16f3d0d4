"""What has to fit a message does."""

from __future__ import annotations

from plugbay.contracts.ainb.machine import AinbMachine
from plugbay.contracts.base import Role
from plugbay.model.operations import PublishSnapshot
from plugbay.model.sizes import MAX_PAYLOAD
from plugbay.wire.fast_json import MsgspecCodec


def test_the_largest_piece_of_data_fits_a_message_and_a_little_more_does_not() -> None:
    machine = AinbMachine(Role.PLUGIN, MsgspecCodec())
    topic = "t" * 256
    assert machine.notify(PublishSnapshot(topic, bytes(MAX_PAYLOAD))) is None
    assert machine.notify(PublishSnapshot(topic, bytes(MAX_PAYLOAD + 100_000))) is not None
