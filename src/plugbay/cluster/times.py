"""The times of a cell. Gateways and nodes must agree on them; tests shorten them."""

from __future__ import annotations

import msgspec


class Times(msgspec.Struct, frozen=True):
    """Seconds."""

    beat: float = 1.0
    """Between two beats of a node."""
    silent: float = 3.5
    """A node without a beat for so long gets no calls, and its repeatable calls go elsewhere."""
    lost: float = 15.0
    """After so long without a beat, the outcome of its other calls is unknown."""
    rejoin: float = 3.0
    """A call that no node has waits so long for NATS, or for nodes that have just lost it."""
    roll: float = 5.0
    """Between two signs of a gateway."""
    stalled: float = 2.0
    """A node that was suspended for so long refuses the calls that no plugin has received yet. Less than `silent`."""
    accepted: float = 0.05
    """A node reports a call as accepted if it has no answer by then."""
    unaccepted: float = 5.0
    """A repeatable call that was not accepted by then goes elsewhere: its message was lost."""
    margin: float = 1.0
    """A gateway waits so much longer than the deadline of a call for its answer."""
    avoid: float = 10.0
    """A node with a malformed answer, or none, gets no calls for so long."""
    kept: float = 60.0
    """A node keeps the answers of ended calls for so long."""
    drain: float = 60.0
    """A node that stops waits so long for its calls."""
    wanted: float = 10.0
    """Between two reminders of a gateway that it needs a plugin with a lease."""
    unwanted: float = 60.0
    """A node stops a plugin with a lease, and gives it back, if no gateway has needed it for so long."""

    @classmethod
    def of(cls, beat: float, lost: float) -> Times:
        """The times of a cell with another interval of beats, or another time until calls are lost."""
        scale = beat / USUAL.beat
        return cls(
            beat=beat,
            silent=USUAL.silent * scale,
            lost=lost,
            rejoin=USUAL.rejoin * scale,
            roll=min(USUAL.roll, lost / 3),
            stalled=USUAL.stalled * scale,
            unaccepted=USUAL.unaccepted * scale,
            kept=max(USUAL.kept, 2 * lost),
        )


USUAL = Times()
