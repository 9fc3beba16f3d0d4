"""A secret is recognised however a program usually passes it on."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus, urlencode

import pytest

from plugbay.host.recording.encodings import forms

SECRET = "s3cr3t/+ü key"
BYTES = SECRET.encode()


@pytest.mark.parametrize(
    "said",
    [
        SECRET,
        base64.b64encode(BYTES).decode(),
        base64.urlsafe_b64encode(BYTES).decode().rstrip("="),
        base64.b64encode(b"user:" + BYTES).decode(),
        base64.b64encode(b"u:" + BYTES + b":tail").decode(),
        base64.b64encode(b"me:" + BYTES).decode(),
        quote(SECRET),
        quote(SECRET, safe="").lower(),
        quote_plus(SECRET),
        urlencode({"q": SECRET}),
        json.dumps({"key": SECRET}),
        json.dumps({"key": SECRET}).replace("/", "\\/"),
        json.dumps({"key": SECRET}).replace("\\u00fc", "\\u00FC"),
        BYTES.hex(),
        BYTES.hex().upper(),
        repr(ValueError(BYTES)),
        repr({"key": SECRET}),
    ],
)
def test_every_usual_form_holds_one_of_the_forms(said: str) -> None:
    assert any(form in said for form in forms(SECRET))


@pytest.mark.parametrize("secret", ["abcdef", "abcdefg", "abcdefgh"])
@pytest.mark.parametrize("before", [b"", b"a", b"ab", b"abc"])
def test_at_the_end_of_what_is_encoded_nothing_of_it_is_left_over(secret: str, before: bytes) -> None:
    said = base64.b64encode(before + secret.encode()).decode()
    longest = max((form for form in forms(secret) if form in said), key=len)
    assert said.endswith(longest)


def test_what_is_something_else_is_left_alone() -> None:
    others = ("s3cr3t", base64.b64encode(b"another thing").decode(), quote("ü/ü"), "s3cr3t/+u key")
    assert not any(form in other for form in forms(SECRET) for other in others)


def test_the_shortest_secret_that_is_looked_for_has_no_form_that_is_part_of_every_text() -> None:
    assert min(map(len, forms("abcdef"))) >= 6
