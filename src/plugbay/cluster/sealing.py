"""Seals the operations of calls: they carry secrets and tokens, and other users of NATS may listen.

Each gateway and each node has an X25519 key pair of its own for the time of one start; nothing of it touches a disk.
The operator of NATS could exchange keys, and is trusted so far.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections import OrderedDict

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from plugbay.wire.json_gate import Malformed

INFO = b"plugbay node call 1"
KEY_BYTES = 32
NONCE_BYTES = 12
MAX_PEERS = 256
"""Keys of peers that are remembered."""


class Sealer:
    """One key pair, and the keys that it shares with peers."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()
        self.public = base64.b64encode(self._private.public_key().public_bytes_raw()).decode()
        self._shared: OrderedDict[str, AESGCM] = OrderedDict()

    def seal(self, peer: str, data: bytes, about: str) -> bytes:
        """Data for a peer only, bound to the text `about`; raises `Malformed` for a key that is none."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._key(peer).encrypt(nonce, data, about.encode())

    def open(self, peer: str, sealed: bytes, about: str) -> bytes:
        """The data that a peer has sealed; raises `Malformed`."""
        try:
            return self._key(peer).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], about.encode())
        except (InvalidTag, ValueError):
            raise Malformed("it was sealed for another, or changed") from None

    def _key(self, peer: str) -> AESGCM:
        known = self._shared.get(peer)
        if known is None:
            known = self._shared[peer] = AESGCM(self._derive(peer))
            if len(self._shared) > MAX_PEERS:
                self._shared.popitem(last=False)
        self._shared.move_to_end(peer)
        return known

    def _derive(self, peer: str) -> bytes:
        try:
            secret = self._private.exchange(X25519PublicKey.from_public_bytes(base64.b64decode(peer, validate=True)))
        except (ValueError, binascii.Error):
            raise Malformed("no public key") from None
        return HKDF(SHA256(), KEY_BYTES, salt=None, info=INFO).derive(secret)
