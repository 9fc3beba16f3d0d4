"""The forms a secret takes when a program passes it on: as it is, in base64, in hex, in a URL, in JSON, in a repr.

Pure: text in, texts out. What is done with them is `discretion`'s business.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

_ESCAPE = re.compile(r"\\u([0-9a-f]{4})")


def forms(secret: str) -> set[str]:
    """Every text in which this secret is still the same secret to whoever finds it."""
    return {secret, *_in_urls(secret), *_in_base64(secret), *_in_hex(secret), *_in_json(secret), *_in_reprs(secret)}


def _in_urls(secret: str) -> Iterator[str]:
    data = secret.encode("utf-8", "surrogatepass")
    for quoted in (quote(data, safe=""), quote(data), quote_plus(data)):
        yield quoted
        yield _lower_hex(quoted)


def _lower_hex(quoted: str) -> str:
    head, *rest = quoted.split("%")
    return head + "".join(f"%{piece[:2].lower()}{piece[2:]}" for piece in rest)


def _in_base64(secret: str) -> Iterator[str]:
    """The part that is the same whatever stands around the secret, as in `Basic base64(user:secret)`.

    Three bytes become four characters, so what stands before it shifts it by 0, 1 or 2 bytes. Characters that share
    bits with a neighbour, 2 or 3 at the front and one at the end, are left out; where the secret stands last, the one
    at the end and the padding belong to it.
    """
    data = secret.encode("utf-8", "surrogatepass")
    for shift, shared in ((0, 0), (1, 2), (2, 3)):
        shifted = bytes(shift) + data
        own = len(shifted) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            encoded = encode(shifted).decode()[shared:]
            yield from (encoded[: own - shared], encoded.rstrip("="), encoded)


def _in_hex(secret: str) -> Iterator[str]:
    digits = secret.encode("utf-8", "surrogatepass").hex()
    yield from (digits, digits.upper())


def _in_json(secret: str) -> Iterator[str]:
    """Some encoders escape slashes as well, and some write their escapes in capitals."""
    for escaped in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        capitals = _ESCAPE.sub(lambda found: f"\\u{found[1].upper()}", escaped)
        for form in (escaped, capitals):
            yield form
            yield form.replace("/", "\\/")


def _in_reprs(secret: str) -> Iterator[str]:
    """As Python shows a text, and bytes, in its exceptions."""
    yield repr(secret)[1:-1]
    yield repr(secret.encode("utf-8", "surrogatepass"))[2:-1]
