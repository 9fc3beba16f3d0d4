"""No secret is left in a frame: found by value in every encoding, by its key, and by its looks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.recording.frame_redaction import FrameRedactor, names_a_secret, pointer
from plugbay.host.recording.redaction import HIDDEN, SHORTEST, Redactor, encodings

KEY = "correct/horse battery+staple"
PLAIN = FrameRedactor(Redactor())

letters = st.text(st.sampled_from("abcXYZ 09/+-_é"), max_size=6)


def redact(said: Any, secrets: dict[str, Any] | None = None) -> tuple[Any, tuple[str, ...]]:
    return FrameRedactor(Redactor(secrets)).redact_frame(said)


# By value.


@given(st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=SHORTEST, max_size=20), st.data())
def test_a_secret_is_found_in_every_encoding_and_position(secret: str, data: st.DataObject) -> None:
    form = data.draw(st.sampled_from(sorted(encodings(secret))))
    text = data.draw(letters) + form + data.draw(letters)
    said = data.draw(
        st.sampled_from(
            [text, {"a": [1, text]}, {text: 1}, [[text], {"b": {"c": text}}], {"token": {text: [text]}}, [text, text]]
        )
    )
    told, places = redact(said, {"key": secret})
    assert places != ()
    assert not any(each in leaf for each in encodings(secret) for leaf in leaves(told))


def leaves(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in [key, *leaves(item)]]
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list) else [str(value)]


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_a_secret_is_found_among_bytes_that_are_no_text(before: bytes, after: bytes) -> None:
    line = FrameRedactor(Redactor({"key": KEY})).redact_line(before + KEY.encode() + after)
    assert KEY.encode() not in line


def test_a_number_that_is_a_secret_is_taken_out() -> None:
    assert redact({"said": [1234567, 12]}, {"pin": 1234567}) == ({"said": [HIDDEN, 12]}, ("/said/0",))


def test_a_secret_that_becomes_known_later_is_taken_out_from_then_on() -> None:
    known = Redactor()
    redactor = FrameRedactor(known)
    assert redactor.redact_frame({"a": KEY}) == ({"a": KEY}, ())
    known.learn({"key": KEY})
    assert redactor.redact_frame({"a": KEY}) == ({"a": HIDDEN}, ("/a",))


# By key.


@pytest.mark.parametrize(
    "key",
    [
        "authorization",
        "Authorization",
        "token",
        "delegation_token",
        "accessToken",
        "password",
        "api_key",
        "X-Api-Key",
        "client_secret",
        "secrets",
        "system_config",
        "private-key",
        "Set-Cookie",
        "credentials",
    ],
)
def test_what_stands_under_a_telling_key_is_taken_out(key: str) -> None:
    assert names_a_secret(key)
    assert redact({"params": {key: "x"}}) == ({"params": {key: HIDDEN}}, (pointer("params", key),))
    assert redact({key: {"a": ["x", 5, None, True, ""]}}) == (
        {key: {"a": [HIDDEN, HIDDEN, None, True, ""]}},
        (pointer(key, "a", 0), pointer(key, "a", 1)),
    )


@pytest.mark.parametrize(
    "key", ["name", "max_tokens", "token_estimate", "key", "author", "secretary", "cookies_eaten", "progressToken"]
)
def test_other_keys_are_left_alone(key: str) -> None:
    assert not names_a_secret(key)
    assert redact({key: "x"}) == ({key: "x"}, ())


def test_the_secrets_of_each_contracts_frames_are_taken_out() -> None:
    kaged = {"method": "initialize", "params": {"config": {"a": "b"}, "system_config": {"key": "123"}}}
    assert redact(kaged)[1] == ("/params/system_config/key",)
    body = {"secrets": {"hook": "123"}, "context": {"gateway": {"delegation_token": "abc", "scopes": ["x"]}}}
    assert redact({"type": "request", "body": body})[1] == (
        "/body/secrets/hook",
        "/body/context/gateway/delegation_token",
    )


def test_a_schema_may_speak_of_secrets() -> None:
    schema = {"properties": {"token": {"type": "string"}, "password": {"type": "string", "minLength": 8}}}
    assert redact({"tools": [{"input_schema": schema}]}) == ({"tools": [{"input_schema": schema}]}, ())
    assert redact({"properties": {"token": "abc"}})[1] == ("/properties/token",)


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ({"headers": [["Accept", "*/*"], ["Authorization", "me"]]}, "/headers/1/1"),
        ({"headers": [{"name": "authorization", "value": "me"}]}, "/headers/0/value"),
        ({"env": {"key": "API_KEY", "value": "me"}}, "/env/value"),
        ({"argv": ["login", "--password", "me"]}, "/argv/2"),
    ],
)
def test_a_key_may_stand_beside_its_value(said: Any, place: str) -> None:
    told, places = redact(said)
    assert places == (place,) and '"me"' not in json.dumps(told)


# By its looks.


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Authorization: Bearer abcdefghijklmnop.qrst", f"Authorization: Bearer {HIDDEN}"),
        ("basic dXNlcjpwYXNzd29yZA==", f"basic {HIDDEN}"),
        ("use sk-abcdefghijklmnop0123!", f"use {HIDDEN}!"),
        ("ghp_abcdefghijklmnopqrst0123", HIDDEN),
        ("github_pat_abcdefghijklmnopqrst0123", HIDDEN),
        ("glpat-abcdefghijklmnop", HIDDEN),
        ("xoxb-1234567890-abc", HIDDEN),
        ("AKIAABCDEFGHIJKLMNOP", HIDDEN),
        ("AIzaabcdefghijklmnopqrstuvwxyz0123456789", HIDDEN),
        ("hf_abcdefghijklmnopqrst", HIDDEN),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.abc-_", HIDDEN),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END", f"-----BEGIN RSA PRIVATE KEY-----{HIDDEN}-----END"),
        ("https://ada:tea@example.org/x", f"https://ada:{HIDDEN}@example.org/x"),
        ("?a=1&access_token=abcdef&b=2", f"?a=1&access_token={HIDDEN}&b=2"),
        ('{"api_key": "abc", "a": 1}', f'{{"api_key": "{HIDDEN}", "a": 1}}'),
        (r"{\"password\":\"abc\"}", rf"{{\"password\":\"{HIDDEN}\"}}"),
    ],
)
def test_a_text_that_looks_like_a_secret_is_taken_out(said: str, told: str) -> None:
    assert redact({"a": said}) == ({"a": told}, ("/a",))
    assert PLAIN.redact_line(said.encode()) == told.encode()
    assert redact({"a": told}) == ({"a": told}, ())


@pytest.mark.parametrize(
    "said",
    [
        "bearer authentication",
        "a basic functionality",
        "risk-averse",
        "token: 5",
        "https://example.org:80/a@b",
        "ghost",
    ],
)
def test_ordinary_words_are_left_alone(said: str) -> None:
    assert redact({"a": said}) == ({"a": said}, ())
    assert PLAIN.redact_line(said.encode()) == said.encode()


@pytest.mark.parametrize("part", ["a-", "a.", "sk-", "eyJ", "://", "basic ", '"x', "token", "=", "bearer "])
def test_a_long_text_of_any_kind_takes_no_time_to_speak_of(part: str) -> None:
    """A pattern that looks back from every place would take minutes, and the test its whole time."""
    told, _ = PLAIN.redact_frame("begin sk- = ey \"'oken:// earer asic eyJ " + part * (400_000 // len(part)))
    assert PLAIN.redact_frame(told) == (told, ())


def test_nothing_secret_leaves_a_frame_as_it_is() -> None:
    said = {"a": [1, 2.5, None, True, "", "text"], "b": {}}
    assert redact(said) == (said, ())


def test_a_pointer_escapes_what_it_has_to() -> None:
    assert pointer("a/b", 0, "c~d") == "/a~1b/0/c~0d"
