"""An interpreter for system call filters, as strict as the kernel's own check of them.

So a filter for any machine can be asked on any machine what it would say.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

DATA = struct.Struct("<IIQ6Q")
"""`struct seccomp_data`: number, machine, instruction pointer, arguments."""

STEP = struct.Struct("<HBBI")

ALLOW = "allow"
KILL = "kill"
Verdict = str | int
"""An int is the error a call is refused with."""

JUMPS = {0x05, 0x15, 0x35}


def instructions(code: bytes) -> list[tuple[int, int, int, int]]:
    """The program, checked like seccomp_check_filter and bpf_check_classic do it."""
    assert code and len(code) % STEP.size == 0 and len(code) // STEP.size <= 4096
    program = list(STEP.iter_unpack(code))
    for place, (operation, yes, no, value) in enumerate(program):
        assert operation in {0x20, 0x54, 0x06, *JUMPS}, f"{operation:#x} at {place}"
        farthest = value if operation == 0x05 else max(yes, no)
        if operation in JUMPS:
            assert place + 1 + farthest < len(program), f"the jump at {place} leads out of the program"
        if operation == 0x20:
            assert value % 4 == 0 and value < DATA.size, f"the load at {place} is not of the data"
    assert program[-1][0] == 0x06, "the last instruction is not an answer"
    return program


def ask(code: bytes, number: int, arguments: Sequence[int] = (), *, machine: int) -> Verdict:
    """What the filter says to one call."""
    padded = [argument & 0xFFFF_FFFF_FFFF_FFFF for argument in (*arguments, *[0] * 6)][:6]
    answer = run(instructions(code), DATA.pack(number & 0xFFFF_FFFF, machine, 0, *padded))
    if answer == 0x7FFF_0000:
        return ALLOW
    if answer == 0x8000_0000:
        return KILL
    assert answer >> 16 == 0x0005, f"{answer:#x} is not an answer of ours"
    return answer & 0xFFFF


def run(program: list[tuple[int, int, int, int]], data: bytes) -> int:
    accumulator, place = 0, 0
    while True:
        operation, yes, no, value = program[place]
        place += 1
        match operation:
            case 0x06:
                return value
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x54:
                accumulator &= value
            case 0x05:
                place += value
            case 0x15:
                place += yes if accumulator == value else no
            case 0x35:
                place += yes if accumulator >= value else no
