"""Builds the system call filter of one machine from `rules.py` and `syscalls.py`, as classic BPF for seccomp.

Runs only when filters are generated; hosts load the generated files (`plugbay.process.sandbox.seccomp`).

A program is assembled from its end to its beginning: the target of an instruction is placed before the instruction. So
every jump goes forward, as the kernel requires, and every distance is known at once. The filter first checks the
machine, then finds the number by binary search, then checks arguments. Calls that are allowed whatever their arguments
cost nothing from Linux 5.11 on: the kernel runs the filter once for each number in advance and caches those verdicts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from scripts.filters.rules import ALL_BITS, ENOSYS, Check, Rule, rules
from scripts.filters.syscalls import LAST, MACHINES, Machine

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
RETURN = 0x06
"""BPF_RET | BPF_K."""

MAX_DISTANCE = 255
"""A comparison has 8 bits for each of its two distances; a JUMP has 32."""

MAX_INSTRUCTIONS = 4096
"""BPF_MAXINSNS: the kernel accepts no longer program."""

ENCODING = struct.Struct("<HBBI")
"""`struct sock_filter`; both of our machines are little-endian."""

ALLOW = 0x7FFF_0000
"""SECCOMP_RET_ALLOW."""
REFUSE = 0x0005_0000
"""SECCOMP_RET_ERRNO; the lower 16 bits are the error."""
KILL = 0x8000_0000
"""SECCOMP_RET_KILL_PROCESS."""

NUMBER_AT = 0
MACHINE_AT = 4
ARGUMENTS_AT = 16
"""Offsets in `struct seccomp_data`; six arguments of 8 bytes, the lower half first."""

Position = int
"""The place of an instruction, counted from the end of the program, so it never changes."""


class Instruction(NamedTuple):
    """One `struct sock_filter`."""

    code: int
    yes: int
    no: int
    value: int


class Assembler:
    """A program that grows at its front. Each method places one step and returns its position."""

    def __init__(self) -> None:
        self._placed: list[Instruction] = []
        """The last instruction first."""

    def verdict(self, value: int) -> Position:
        """End the program with this verdict."""
        return self._place(RETURN, value)

    def load(self, offset: int, then: Position) -> Position:
        """Load 32 bits of the data into the accumulator."""
        self._continue_at(then)
        return self._place(LOAD, offset)

    def mask(self, bits: int, then: Position) -> Position:
        """Keep only these bits of the accumulator."""
        self._continue_at(then)
        return self._place(AND, bits)

    def branch(self, comparison: int, value: int, yes: Position, no: Position) -> Position:
        """Compare the accumulator. Nothing is placed if both branches are the same."""
        if yes == no:
            return yes
        yes, no = self._in_reach(yes), self._in_reach(no)
        here = len(self._placed)
        return self._place(comparison, value, here - yes, here - no)

    def code(self) -> bytes:
        """The whole program; it begins with the instruction that was placed last."""
        if len(self._placed) > MAX_INSTRUCTIONS:
            raise ValueError(f"the program has {len(self._placed)} instructions; the kernel takes {MAX_INSTRUCTIONS}")
        return b"".join(ENCODING.pack(*instruction) for instruction in reversed(self._placed))

    def _place(self, code: int, value: int, yes: int = 0, no: int = 0) -> Position:
        self._placed.append(Instruction(code, yes, no, value))
        return len(self._placed)

    def _continue_at(self, then: Position) -> None:
        """Make sure that the next instruction placed continues at `then`: directly, or by a jump."""
        if then != len(self._placed):
            self._place(JUMP, len(self._placed) - then)

    def _in_reach(self, target: Position) -> Position:
        """The target, or a jump to it if it is too far. One more jump may come between, for the other branch."""
        if len(self._placed) + 1 - target <= MAX_DISTANCE:
            return target
        return self._place(JUMP, len(self._placed) - target)


def build(machine: str, *, network: bool) -> bytes:
    """The filter for a machine of `syscalls.MACHINES`."""
    return _Filter(MACHINES[machine], rules(network=network)).code()


class _Filter:
    """One filter, assembled from its verdicts back to its first instruction."""

    def __init__(self, machine: Machine, table: Iterable[Rule]) -> None:
        self._assembler = Assembler()
        self._machine = machine
        self._table = tuple(table)

    def code(self) -> bytes:
        assembler = self._assembler
        kill = assembler.verdict(KILL)
        allow = assembler.verdict(ALLOW)
        errors = {ENOSYS, *(rule.error for rule in self._table)}
        refuse = {error: assembler.verdict(REFUSE | error) for error in sorted(errors)}
        look_up = self._search(self._ranges(self._verdicts(refuse, allow), refuse[ENOSYS], allow))
        number = assembler.load(NUMBER_AT, look_up)
        assembler.load(MACHINE_AT, assembler.branch(EQUAL, self._machine.audit, number, kill))
        return assembler.code()

    def _verdicts(self, refuse: Mapping[int, Position], allow: Position) -> dict[int, Position]:
        """The position at which each call of a rule continues, by number."""
        verdicts: dict[int, Position] = {}
        for rule in reversed(self._table):
            for number in self._machine.numbers_of(rule.calls):
                applies, otherwise = refuse[rule.error], verdicts.get(number, allow)
                for check in reversed(rule.checks):
                    applies = self._check(check, applies, otherwise)
                verdicts[number] = applies
        return verdicts

    def _check(self, check: Check, yes: Position, no: Position) -> Position:
        found, position = (no, yes) if check.outside else (yes, no)
        for value in reversed(check.values):
            position = self._assembler.branch(EQUAL, value, found, position)
        if check.mask != ALL_BITS:
            position = self._assembler.mask(check.mask, position)
        return self._assembler.load(ARGUMENTS_AT + 8 * check.argument, position)

    def _ranges(
        self, verdicts: Mapping[int, Position], unknown: Position, allow: Position
    ) -> list[tuple[int, Position]]:
        """All numbers, as ranges that continue at the same position: the first number of each, and the position."""
        found: list[tuple[int, Position]] = []
        for number in range(LAST + 2):
            known = number <= LAST and number not in self._machine.unassigned
            position = verdicts.get(number, allow) if known else unknown
            if not found or found[-1][1] != position:
                found.append((number, position))
        return found

    def _search(self, ranges: list[tuple[int, Position]]) -> Position:
        if len(ranges) == 1:
            return ranges[0][1]
        middle = len(ranges) // 2
        upper, lower = self._search(ranges[middle:]), self._search(ranges[:middle])
        return self._assembler.branch(AT_LEAST, ranges[middle][0], upper, lower)
