"""An assembler for classic BPF, as seccomp takes it: loads, a mask, comparisons, jumps, answers.

Owns the encoding and the distance of jumps.

A program is written from its end to its beginning: whatever an instruction leads to has been placed before it. So every
jump goes forward, as the kernel demands, every distance is known at once, and no label has to be resolved. The place of
an instruction, its spot, is counted from the end for the same reason: it never changes.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

LOAD = 0x20
"""BPF_LD | BPF_W | BPF_ABS: 32 bits of the data at an offset."""
AND = 0x54
"""BPF_ALU | BPF_AND | BPF_K."""
JUMP = 0x05
"""BPF_JMP | BPF_JA."""
EQUAL = 0x15
"""BPF_JMP | BPF_JEQ | BPF_K."""
AT_LEAST = 0x35
"""BPF_JMP | BPF_JGE | BPF_K; unsigned."""
ANSWER = 0x06
"""BPF_RET | BPF_K."""

FARTHEST = 255
"""A comparison has 8 bits for each of its two distances; a JUMP has 32."""

LONGEST = 4096
"""BPF_MAXINSNS: the kernel takes no longer program."""

ENCODING = struct.Struct("<HBBI")
"""`struct sock_filter`; both of our machines are little-endian."""

Spot = int


class Instruction(NamedTuple):
    """One `struct sock_filter`."""

    code: int
    yes: int
    no: int
    value: int


class Assembler:
    """A program that grows at its front. Each method places one step and returns its spot."""

    def __init__(self) -> None:
        self._placed: list[Instruction] = []
        """The last instruction first."""

    def answer(self, value: int) -> Spot:
        """End here, with this verdict."""
        return self._place(ANSWER, value)

    def load(self, offset: int, then: Spot) -> Spot:
        """Take 32 bits of the data into the accumulator."""
        self._lead_to(then)
        return self._place(LOAD, offset)

    def mask(self, bits: int, then: Spot) -> Spot:
        """Keep only these bits of the accumulator."""
        self._lead_to(then)
        return self._place(AND, bits)

    def branch(self, comparison: int, value: int, yes: Spot, no: Spot) -> Spot:
        """Compare the accumulator; where both ways are the same way there is nothing to ask."""
        if yes == no:
            return yes
        yes, no = self._in_reach(yes), self._in_reach(no)
        here = len(self._placed)
        return self._place(comparison, value, here - yes, here - no)

    def code(self) -> bytes:
        """The whole program; it begins with what was placed last."""
        if len(self._placed) > LONGEST:
            raise ValueError(f"the program has {len(self._placed)} instructions; the kernel takes {LONGEST}")
        return b"".join(ENCODING.pack(*instruction) for instruction in reversed(self._placed))

    def _place(self, code: int, value: int, yes: int = 0, no: int = 0) -> Spot:
        self._placed.append(Instruction(code, yes, no, value))
        return len(self._placed)

    def _lead_to(self, then: Spot) -> None:
        """What is placed next goes on to the spot right behind it, so that has to be `then`, or a jump there."""
        if then != len(self._placed):
            self._place(JUMP, len(self._placed) - then)

    def _in_reach(self, target: Spot) -> Spot:
        """The target, or a jump to it when it is too far; one more jump may come between, for the other way."""
        if len(self._placed) + 1 - target <= FARTHEST:
            return target
        return self._place(JUMP, len(self._placed) - target)
