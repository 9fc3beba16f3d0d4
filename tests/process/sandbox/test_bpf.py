"""Programs that are written from their end, and jumps that are always near enough."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.process.sandbox.bpf import AT_LEAST, EQUAL, FARTHEST, JUMP, LONGEST, Assembler
from tests.support.bpf import DATA, instructions, run


def answer_of(code: bytes, number: int) -> int:
    return run(instructions(code), DATA.pack(number, 0, 0, *[0] * 6))


def test_a_program_begins_with_what_was_placed_last() -> None:
    assembler = Assembler()
    no, yes = assembler.answer(7), assembler.answer(8)
    assembler.load(0, assembler.branch(EQUAL, 42, yes, no))
    assert instructions(assembler.code()) == [(0x20, 0, 0, 0), (0x15, 0, 1, 42), (0x06, 0, 0, 8), (0x06, 0, 0, 7)]
    assert [answer_of(assembler.code(), number) for number in (41, 42)] == [7, 8]


def test_a_mask_keeps_the_bits_it_names() -> None:
    assembler = Assembler()
    no, yes = assembler.answer(0), assembler.answer(1)
    assembler.load(0, assembler.mask(0xF0, assembler.branch(EQUAL, 0x20, yes, no)))
    assert [answer_of(assembler.code(), number) for number in (0x20, 0x2F, 0xF20, 0x30)] == [1, 1, 1, 0]


def test_comparisons_are_unsigned() -> None:
    assembler = Assembler()
    no, yes = assembler.answer(0), assembler.answer(1)
    assembler.load(0, assembler.branch(AT_LEAST, 0x8000_0000, yes, no))
    assert [answer_of(assembler.code(), number) for number in (0, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)] == [
        0,
        0,
        1,
        1,
    ]


def test_where_both_ways_are_one_nothing_is_asked() -> None:
    assembler = Assembler()
    only = assembler.answer(3)
    assert assembler.branch(EQUAL, 42, only, only) == only
    assert len(instructions(assembler.code())) == 1


def test_a_step_can_lead_to_a_spot_that_is_not_right_behind_it() -> None:
    assembler = Assembler()
    wanted = assembler.answer(1)
    assembler.answer(2)
    assembler.load(0, wanted)
    assert answer_of(assembler.code(), 0) == 1


@pytest.mark.parametrize("between", [*range(FARTHEST - 3, FARTHEST + 4), 2 * FARTHEST])
def test_a_comparison_reaches_both_its_ways_however_far_they_are(between: int) -> None:
    assembler = Assembler()
    no, yes = assembler.answer(0), assembler.answer(1)
    for _ in range(between):
        assembler.answer(2)
    assembler.load(0, assembler.branch(EQUAL, 42, yes, no))
    assert [answer_of(assembler.code(), number) for number in (41, 42)] == [0, 1]


def test_a_near_way_takes_no_extra_jump() -> None:
    assembler = Assembler()
    no, yes = assembler.answer(0), assembler.answer(1)
    assembler.load(0, assembler.branch(EQUAL, 42, yes, no))
    assert JUMP not in [step[0] for step in instructions(assembler.code())]


@given(st.dictionaries(st.integers(0, 0xFFFF_FFFF), st.integers(1, 1000), max_size=700), st.data())
def test_a_chain_of_any_length_finds_what_a_dictionary_finds(answers: dict[int, int], data: st.DataObject) -> None:
    assembler = Assembler()
    spots = {value: assembler.answer(value) for value in {0, *answers.values()}}
    spot = spots[0]
    for number, value in answers.items():
        spot = assembler.branch(EQUAL, number, spots[value], spot)
    assembler.load(0, spot)
    number = data.draw(st.sampled_from([*answers, 5]) | st.integers(0, 0xFFFF_FFFF))
    assert answer_of(assembler.code(), number) == answers.get(number, 0)


def test_a_program_longer_than_the_kernel_takes_is_refused() -> None:
    assembler = Assembler()
    for _ in range(LONGEST):
        assembler.answer(0)
    assert len(assembler.code()) == 8 * LONGEST
    assembler.answer(0)
    with pytest.raises(ValueError, match="4097 instructions"):
        assembler.code()
