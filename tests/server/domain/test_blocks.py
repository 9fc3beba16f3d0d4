"""Blocks: what a client may bring, and how it can be told that nobody touched one."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.invocations.compaction_result import KINDS
from plugbay.server.domain import blocks
from plugbay.server.domain.errors import GatewayError
from plugbay.store.chains import StoredBlock
from tests.support.requirements import requirement

TEXT = {"type": "text", "text": "hello"}
CALL = {"kind": "tool_call", "content": [], "tool_call_id": "c1", "name": "t", "input": {"a": 1}}
RESULT = {"kind": "tool_result", "content": [TEXT], "tool_call_id": "c1", "is_error": False}


def sealed(*given: dict[str, Any], after: int = 0, digest: str = blocks.EMPTY) -> list[StoredBlock]:
    numbers = count(1)
    return blocks.sealed(
        given,
        chain_id="ch_1",
        after=after,
        digest=digest,
        run_id="run_1",
        now=1_770_000_000.0,
        ids=lambda prefix: f"{prefix}{next(numbers)}",
    )


def test_a_block_comes_back_as_it_was_written() -> None:
    [stored] = sealed(blocks.text_block("input", "été \0"))
    assert blocks.opened(stored) == {
        "kind": "input",
        "content": [{"type": "text", "text": "été \0"}],
        "id": "blk_1",
        "run_id": "run_1",
        "sequence": 1,
        "created_at": "2026-02-02T02:40:00.000000Z",
    }


@requirement("vai:control-chain-digest")
@given(texts=st.lists(st.text(max_size=20), min_size=1, max_size=6), data=st.data())
def test_whatever_is_changed_in_a_chain_is_found(texts: list[str], data: st.DataObject) -> None:
    stored = sealed(*(blocks.text_block("input", text) for text in texts))
    assert blocks.breaks(stored) is None
    at = data.draw(st.integers(0, len(stored) - 1))
    place = data.draw(st.integers(0, len(stored[at].body) - 1))
    body = bytearray(stored[at].body)
    body[place] ^= 1
    touched = [*stored[:at], msgspec.structs.replace(stored[at], body=bytes(body)), *stored[at + 1 :]]
    assert blocks.breaks(touched) == at + 1
    missing = [*stored[:at], *stored[at + 1 :]]
    assert blocks.breaks(missing) == (None if at == len(stored) - 1 else at + 1)


def test_appending_in_two_steps_is_appending_in_one() -> None:
    first = sealed(blocks.text_block("input", "a"))
    more = blocks.sealed(
        [blocks.text_block("response", "b")],
        chain_id="ch_1",
        after=1,
        digest=first[-1].digest,
        run_id="run_1",
        now=1_770_000_000.0,
        ids=lambda prefix: f"{prefix}2",
    )
    both = sealed(blocks.text_block("input", "a"), blocks.text_block("response", "b"))
    assert [*first, *more] == both


def test_a_copy_has_the_same_bytes_and_the_same_digest() -> None:
    stored = sealed(CALL, RESULT)
    copied = blocks.copied(stored, "ch_2")
    assert [block.chain_id for block in copied] == ["ch_2", "ch_2"]
    assert [(block.body, block.digest) for block in copied] == [(block.body, block.digest) for block in stored]


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ([{"kind": "rumour", "content": [TEXT]}], "blocks[0]"),
        ([{"content": [TEXT]}], "blocks[0]"),
        ([{"kind": "input", "content": "hello"}], "blocks[0]"),
        ([{"kind": "input", "content": [{"type": "smell"}]}], "blocks[0]"),
        ([{"kind": "input", "content": ["hello"]}], "blocks[0]"),
        ([{"kind": "input", "content": [{"type": "text", "text": 7}]}], "blocks[0]"),
        ([{"kind": "input", "content": [{"type": "image"}]}], "blocks[0]"),
        ([{"kind": "input", "content": [{"type": "image", "source": {"type": "path"}}]}], "blocks[0]"),
        ([{"kind": "input"}], "blocks"),
        ([CALL], "blocks"),
        ([RESULT], "blocks"),
        ([CALL, CALL, RESULT], "blocks"),
        ([blocks.text_block("input", "x" * (blocks.MAX_BYTES + 1))], "blocks[0]"),
        ([blocks.text_block("input", "x")] * (blocks.MAX_BLOCKS + 1), "blocks"),
    ],
)
def test_what_is_no_block_is_refused_with_its_place(given: list[dict[str, Any]], param: str) -> None:
    with pytest.raises(GatewayError) as refused:
        blocks.checked(given, KINDS)
    assert (refused.value.code, refused.value.status, refused.value.param) == ("chain.invalid_blocks", 422, param)


def test_what_a_client_says_about_ids_and_times_does_not_count() -> None:
    brought = {"kind": "input", "content": [TEXT], "id": "blk_9", "run_id": "run_9", "created_at": "never", "x": 1}
    assert blocks.checked([brought], KINDS) == [{"kind": "input", "content": [TEXT]}]
    assert blocks.checked([CALL, RESULT], KINDS) == [CALL, RESULT]
    image = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    assert blocks.checked([{"kind": "input", "content": [image]}], KINDS)[0]["content"] == [image]


def test_a_seed_keeps_what_it_says_of_itself() -> None:
    seed = {"kind": "input", "content": [TEXT], "lineage": ["blk_1"], "id": "blk_1", "sequence": 4}
    assert blocks.seeded(seed) == {"kind": "input", "content": [TEXT], "lineage": ["blk_1"]}


def test_the_words_of_blocks() -> None:
    both = [blocks.text_block("input", "a"), {"kind": "input", "content": [{"type": "image"}, TEXT]}]
    assert blocks.text_of(both) == "a\nhello"
    assert blocks.estimate(both) > 0
