"""An operation is read by the node that it is for, and by no other."""

from __future__ import annotations

import pytest

from plugbay.cluster.sealing import MAX_PEERS, NONCE_BYTES, Sealer
from plugbay.wire.json_gate import Malformed


def test_only_the_peer_reads_what_was_sealed_for_it() -> None:
    gateway, node, other = Sealer(), Sealer(), Sealer()
    sealed = gateway.seal(node.public, b"secret", "call 1")
    assert b"secret" not in sealed
    assert node.open(gateway.public, sealed, "call 1") == b"secret"
    for reader, sender, about in ((other, gateway, "call 1"), (node, other, "call 1"), (node, gateway, "call 2")):
        with pytest.raises(Malformed):
            reader.open(sender.public, sealed, about)


@pytest.mark.parametrize("at", [0, NONCE_BYTES, -1])
def test_a_changed_byte_is_noticed(at: int) -> None:
    gateway, node = Sealer(), Sealer()
    sealed = bytearray(gateway.seal(node.public, b"secret", "call 1"))
    sealed[at] ^= 1
    with pytest.raises(Malformed):
        node.open(gateway.public, bytes(sealed), "call 1")


@pytest.mark.parametrize("key", ["", "odd", "AAAA", "é"])
def test_a_key_that_is_none_is_malformed(key: str) -> None:
    with pytest.raises(Malformed):
        Sealer().seal(key, b"", "")


@pytest.mark.parametrize("sealed", [b"", b"short"])
def test_too_few_bytes_are_malformed(sealed: bytes) -> None:
    with pytest.raises(Malformed):
        Sealer().open(Sealer().public, sealed, "")


def test_keys_of_many_peers_are_not_kept() -> None:
    sealer = Sealer()
    for _ in range(MAX_PEERS + 2):
        sealer.seal(Sealer().public, b"", "")
    assert len(sealer._shared) == MAX_PEERS
