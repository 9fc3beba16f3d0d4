"""From rules to a program: `build` makes the filter of one machine.

Owns the shape of the program: the machine is asked first, then the number is looked up by halving, then the arguments
are looked at. Never runs in a host: hosts load the filter that was built and shipped
(`seccomp.program`).

Halving finds a number with seven comparisons. For the calls that are always allowed the kernel makes none from 5.11 on:
it runs the filter once for each number in advance and remembers those whose arguments are never looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plugbay.process.sandbox.bpf import AT_LEAST, EQUAL, Assembler, Spot
from plugbay.process.sandbox.filter_rules import ALL_BITS, ENOSYS, Check, Rule, rules
from plugbay.process.sandbox.syscalls import LAST, MACHINES, Machine

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


def build(machine: str, *, network: bool) -> bytes:
    """The filter for a machine that `syscalls.MACHINES` knows."""
    return _Filter(MACHINES[machine], rules(network=network)).code()


class _Filter:
    """One filter, assembled from its answers back to its first instruction."""

    def __init__(self, machine: Machine, table: Iterable[Rule]) -> None:
        self._assembler = Assembler()
        self._machine = machine
        self._table = tuple(table)

    def code(self) -> bytes:
        assembler = self._assembler
        kill = assembler.answer(KILL)
        allow = assembler.answer(ALLOW)
        errors = {ENOSYS, *(rule.error for rule in self._table)}
        refuse = {error: assembler.answer(REFUSE | error) for error in sorted(errors)}
        look_up = self._search(self._stretches(self._verdicts(refuse, allow), refuse[ENOSYS], allow))
        number = assembler.load(NUMBER_AT, look_up)
        assembler.load(MACHINE_AT, assembler.branch(EQUAL, self._machine.audit, number, kill))
        return assembler.code()

    def _verdicts(self, refuse: Mapping[int, Spot], allow: Spot) -> dict[int, Spot]:
        """Where each call that a rule names goes on, by number."""
        verdicts: dict[int, Spot] = {}
        for rule in reversed(self._table):
            for number in self._machine.numbers_of(rule.calls):
                applies, otherwise = refuse[rule.error], verdicts.get(number, allow)
                for check in reversed(rule.checks):
                    applies = self._check(check, applies, otherwise)
                verdicts[number] = applies
        return verdicts

    def _check(self, check: Check, yes: Spot, no: Spot) -> Spot:
        found, spot = (no, yes) if check.outside else (yes, no)
        for value in reversed(check.values):
            spot = self._assembler.branch(EQUAL, value, found, spot)
        if check.mask != ALL_BITS:
            spot = self._assembler.mask(check.mask, spot)
        return self._assembler.load(ARGUMENTS_AT + 8 * check.argument, spot)

    def _stretches(self, verdicts: Mapping[int, Spot], unknown: Spot, allow: Spot) -> list[tuple[int, Spot]]:
        """All numbers there are, as stretches that go on in the same way: the first number of each, and where to."""
        found: list[tuple[int, Spot]] = []
        for number in range(LAST + 2):
            known = number <= LAST and number not in self._machine.unassigned
            spot = verdicts.get(number, allow) if known else unknown
            if not found or found[-1][1] != spot:
                found.append((number, spot))
        return found

    def _search(self, stretches: list[tuple[int, Spot]]) -> Spot:
        if len(stretches) == 1:
            return stretches[0][1]
        middle = len(stretches) // 2
        upper, lower = self._search(stretches[middle:]), self._search(stretches[:middle])
        return self._assembler.branch(AT_LEAST, stretches[middle][0], upper, lower)
