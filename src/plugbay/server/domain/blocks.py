"""Blocks: what a chain is made of, and how it can be told that nobody touched one.

Owns the shape of a block, which of them a client may bring, the bytes a block is kept as, and the digest that covers a
chain up to each of its blocks. Pure: ids and clock are passed in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from plugbay.host.invocations import compaction_result
from plugbay.server.domain.clock import stamp
from plugbay.server.domain.errors import GatewayError, unprocessable
from plugbay.server.domain.ids import Ids
from plugbay.store.chains import StoredBlock

Block = dict[str, Any]

EMPTY = "0" * 64
"""The digest of a chain without blocks."""

MAX_BLOCKS = 2_000
"""Blocks that may come with one request: a chain that is moved here from elsewhere, and no more."""

MAX_BYTES = 4 << 20
"""Bytes of one block as JSON: an image fits, a film does not."""

CONTENT = frozenset("text image audio video document".split())
SOURCES = frozenset("base64 url asset".split())

_MORE = {
    "tool_call": ("tool_call_id", "name", "input"),
    "tool_result": ("tool_call_id", "tool_execution_id", "is_error", "structured_output"),
}
"""Fields of a block beside those that each has."""

_PLAIN = ("kind", "content")
_ENCODER = msgspec.json.Encoder(order="sorted")


def text_block(kind: str, text: str) -> Block:
    """A block with one text."""
    return {"kind": kind, "content": [{"type": "text", "text": text}]}


def text_of(blocks: Iterable[Mapping[str, Any]]) -> str:
    """What these blocks say in words."""
    items = (item for block in blocks for item in block.get("content", ()))
    return "\n".join(item["text"] for item in items if item.get("type") == "text" and isinstance(item.get("text"), str))


# What a client may bring.


def checked(blocks: Sequence[Mapping[str, Any]], kinds: frozenset[str], param: str = "blocks") -> list[Block]:
    """These blocks with the fields that count and no others; raises what is wrong with them."""
    if len(blocks) > MAX_BLOCKS:
        raise _bad(param, f"there may be {MAX_BLOCKS:,} blocks at once")
    clean = [_clean(block) for block in blocks]
    for at, block in enumerate(clean):
        why = _problem(block, kinds)
        if why is not None:
            raise _bad(f"{param}[{at}]", why)
    found = compaction_result.violations({"seed_blocks": clean}, {}, clean, ()) if clean else []
    if found:
        raise _bad(param, found[0].replace("seed_blocks", param))
    return clean


def _clean(block: Mapping[str, Any]) -> Block:
    """Without what is not the client's to say: ids, moments, the run."""
    names = (*_PLAIN, *_MORE.get(str(block.get("kind")), ()))
    return {name: block[name] for name in names if name in block}


def _problem(block: Block, kinds: frozenset[str]) -> str | None:
    kind = block.get("kind")
    if kind not in kinds:
        return f"the kind must be one of {', '.join(sorted(kinds))}"
    if len(_ENCODER.encode(block)) > MAX_BYTES:
        return f"a block has at most {MAX_BYTES:,} bytes"
    content = block.get("content", [])
    if not isinstance(content, list):
        return "content must be a list"
    return next((why for item in content if (why := _content_problem(item)) is not None), None)


def _content_problem(item: Any) -> str | None:
    kind = item.get("type") if isinstance(item, dict) else None
    if not isinstance(kind, str) or kind not in CONTENT:
        return f"content must have a type of {', '.join(sorted(CONTENT))}"
    if kind == "text":
        return None if isinstance(item.get("text"), str) else "content of type text must have a text"
    source = item.get("source")
    of = source.get("type") if isinstance(source, dict) else None
    if not isinstance(of, str) or of not in SOURCES:
        return f"content of type {kind} must have a source of type {', '.join(sorted(SOURCES))}"
    return None


def _bad(param: str, why: str) -> GatewayError:
    return unprocessable("chain.invalid_blocks", why, param)


# How they are kept.


def sealed(
    blocks: Sequence[Mapping[str, Any]],
    *,
    chain_id: str,
    after: int,
    digest: str,
    run_id: str | None,
    now: float,
    ids: Ids,
) -> list[StoredBlock]:
    """Blocks as they come to lie in a chain, behind the one with the sequence `after` and its digest."""
    kept: list[StoredBlock] = []
    for sequence, block in enumerate(blocks, after + 1):
        id = ids("blk_")
        whole = {**block, "id": id, "run_id": run_id, "sequence": sequence, "created_at": stamp(now)}
        body = _ENCODER.encode(whole)
        digest = next_digest(digest, body)
        kept.append(
            StoredBlock(
                chain_id=chain_id,
                sequence=sequence,
                id=id,
                kind=block["kind"],
                run_id=run_id,
                body=body,
                digest=digest,
                created_at=now,
            )
        )
    return kept


def copied(blocks: Iterable[StoredBlock], chain_id: str) -> list[StoredBlock]:
    """The same blocks in another chain, byte by byte, so that both have the same digest this far."""
    return [msgspec.structs.replace(block, chain_id=chain_id) for block in blocks]


def next_digest(digest: str, body: bytes) -> str:
    """The digest of a chain after one more block."""
    return hashlib.sha256(digest.encode() + body).hexdigest()


def breaks(blocks: Sequence[StoredBlock]) -> int | None:
    """The sequence of the first block that is not what it was, or not where it was; None: all are whole."""
    digest = EMPTY
    for sequence, block in enumerate(blocks, 1):
        digest = next_digest(digest, block.body)
        if block.sequence != sequence or block.digest != digest:
            return sequence
    return None


def opened(stored: StoredBlock) -> Block:
    """A block as clients see it."""
    block: Block = msgspec.json.decode(stored.body)
    return block


def projected(block: Mapping[str, Any]) -> Block:
    """A block as compactors see it and give it back: what it says, and not where it lay."""
    return _clean(block)


def estimate(blocks: Sequence[Mapping[str, Any]]) -> int:
    """Tokens of these blocks, by the host's own figure."""
    return compaction_result.token_estimate([_clean(block) for block in blocks])


def seeded(block: Mapping[str, Any]) -> Block:
    """A block of a compactor's seed as it is kept: with what it says of itself, without what is ours to say."""
    return {name: value for name, value in block.items() if name not in ("id", "run_id", "sequence", "created_at")}
