"""Secrets are removed from output: values, then a real process that prints its key everywhere, then frames."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay import Host
from plugbay.host.config import settings
from plugbay.host.recording.redaction import (
    EXPIRED_TOKENS,
    HIDDEN,
    SHORTEST,
    FrameRedactor,
    Redactor,
    encodings,
    names_a_secret,
    pointer,
)
from plugbay.model.errors import Code, Failure
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement
from tests.support.tiers import few

KEY = "sk-0123456789"
LEAKS = """
def tool(name, params, m):
    key = greeting["system_config"]["key"]
    print("using", key, file=sys.stderr, flush=True)
    print("noise", key, flush=True)
    if params.get("die"):
        os._exit(3)
    fail(m, -32000, "bad key " + key, tried=[key])
"""


@pytest.mark.parametrize(
    ("secrets", "said", "told"),
    [
        ({"key": KEY}, f"a {KEY} b {KEY}", f"a {HIDDEN} b {HIDDEN}"),
        ({"a": "secret", "b": "secretive"}, "secretive", HIDDEN),
        ({"deep": {"list": ["swordfish"]}}, {"swordfish": ["swordfish", 1, None]}, {HIDDEN: [HIDDEN, 1, None]}),
        ({"pin": 123456}, "pin 123456", f"pin {HIDDEN}"),
        ({"pin": "123456"}, [123456, 5123456.5, 12345, True], [HIDDEN, f"5{HIDDEN}.5", 12345, True]),
        ({"pem": "BEGIN KEY\nabcdefgh\nEND KEY"}, "abcdefgh", HIDDEN),
        ({"short": "abc"}, "abc", "abc"),
        ({}, "anything", "anything"),
        (None, "anything", "anything"),
    ],
)
def test_output_of_a_plugin_is_redacted(secrets: Any, said: Any, told: Any) -> None:
    assert Redactor(secrets).redact_value(said) == told


def test_a_failure_keeps_everything_else() -> None:
    failure = Failure(Code.OVERLOADED, f"no {KEY}", plugin="p", retryable=True, retry_after_ms=5, detail={"a": KEY})
    told = Redactor({"key": KEY}).redact_failure(failure)
    assert told == Failure(
        Code.OVERLOADED, f"no {HIDDEN}", plugin="p", retryable=True, retry_after_ms=5, detail={"a": HIDDEN}
    )
    assert Redactor({}).redact_failure(failure) is failure


def test_a_secret_that_becomes_known_later_is_redacted_from_then_on() -> None:
    redactor = Redactor()
    assert not redactor.has_secrets and redactor.redact_line(b"a " + KEY.encode()) == b"a " + KEY.encode()
    redactor.learn({"key": KEY})
    assert redactor.has_secrets and redactor.redact_line(b"a " + KEY.encode() + b"\xff") == b"a ***\xff"


def test_a_line_without_secrets_stays_the_same_bytes() -> None:
    line = b"\xff\xfe nothing to see"
    assert Redactor({"key": KEY}).redact_line(line) is line


@requirement("vai:host-redaction-forms")
def test_a_secret_in_base64_or_in_a_url_is_a_secret_too() -> None:
    redactor = Redactor({"key": "swordfish/1+2"})
    for said in ("c3dvcmRmaXNoLzErMg==", "swordfish%2F1%2B2", "swordfish%2f1%2b2"):
        assert HIDDEN in redactor.redact_text(f"<{said}>")
    assert redactor.redact_text("c29tZXRoaW5nIGVsc2U=") == "c29tZXRoaW5nIGVsc2U="


def test_a_token_is_redacted_while_it_is_valid_and_forgotten_after_many_others() -> None:
    redactor = Redactor({"key": KEY})
    tokens = [f"{number:04d}-is-the-token" for number in range(EXPIRED_TOKENS + 2)]
    for token in tokens:
        redactor.learn(None, (token,))
    for token in tokens[1:]:
        redactor.expire(token)
        redactor.expire(token)
    assert redactor.redact_text(f"{tokens[-1]} {tokens[2]} {KEY}") == f"{HIDDEN} {HIDDEN} {HIDDEN}"
    assert redactor.redact_text(tokens[0]) == HIDDEN  # however many others have come and gone
    assert redactor.redact_text(tokens[1]) == tokens[1]


@requirement("host:stderr-flood")
def test_lines_without_a_secret_are_searched_together_and_lines_with_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[bytes] = []
    redact = Redactor.redact_line

    def counted(self: Redactor, line: bytes) -> bytes:
        searched.append(line)
        return redact(self, line)

    monkeypatch.setattr(Redactor, "redact_line", counted)
    redactor = Redactor({"key": "hunter2-hunter2"})
    flood = [b"line %d" % number for number in range(1000)]
    assert redactor.redact_lines(flood) == flood and searched == []
    for printed, shown in ((b"my hunter2-hunter2", b"my ***"), (b"cut: hunter2-", b"cut: ***")):
        assert redactor.redact_lines([*flood, printed]) == [*flood, shown]
    assert len(searched) == 2 * 1001


@requirement("vai:host-redaction-forms")
def test_a_secret_truncated_in_a_diagnosis_is_redacted_too() -> None:
    redactor = Redactor({"key": "swordfish/and/sharks+2"})
    for size in range(8, len("swordfish/and/sharks+2") + 1):
        cut = "swordfish/and/sharks+2"[:size]
        assert redactor.redact_text(f"bad {cut!r}, {cut}") == f"bad '{HIDDEN}', {HIDDEN}"
        assert redactor.redact_line(f"key {cut}…".encode()) == f"key {HIDDEN}…".encode()
    assert redactor.redact_line(b"swordfish%2Fand%2Fsha") == HIDDEN.encode()
    assert redactor.redact_text("swords and sharks") == "swords and sharks"


def test_data_loses_whole_secrets_only() -> None:
    redactor = Redactor({"url": "https://hooks.example/T0/secret"})
    said = {"url": "https://hooks.example/", "result": "https://hooks.example/T0/secret"}
    assert redactor.redact_value(said) == {"url": "https://hooks.example/", "result": HIDDEN}
    left = {"result": {"next": "https://hooks.example/"}, "hint": "https://hooks.example/"}
    told = redactor.redact_failure(Failure(Code.PLUGIN_ERROR, "no", detail=left))
    assert told.detail == {"result": {"next": "https://hooks.example/"}, "hint": HIDDEN}


@requirement("kaged:secrets-never-told")
def test_a_plugin_that_prints_its_key_does_not_make_the_host_repeat_it(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    schema = {"type": "object", "properties": {"key": {"type": "string"}}}
    root = write_kaged_plugin(tmp_path, body=LEAKS, system_config_schema=schema)
    settings.save_secrets(tmp_path / "state", "p", {"key": KEY})
    heard: list[Any] = []

    async def main() -> None:
        async with Host.load(root, state_dir=tmp_path / "state") as host:
            events = host.subscribe("plugin.lifecycle.>")

            async def listen() -> None:
                async for event in events:
                    heard.append(event.payload)

            listener = asyncio.ensure_future(listen())
            heard.append((await host.attempt("echo", {})).failure)
            heard.append((await host.attempt("echo", {"die": True})).failure)
            await until(lambda: any("stderr_tail" in str(item) and "exit_code" in str(item) for item in heard[2:]))
            listener.cancel()
            heard.extend(host.call_log.records)  # type: ignore[attr-defined]

    with caplog.at_level(logging.DEBUG):
        run(main)
    assert HIDDEN in str(heard) and HIDDEN in caplog.text
    assert KEY not in str(heard) + caplog.text + json.dumps([str(item) for item in heard])


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
    assert any(form in said for form in encodings(SECRET))


@pytest.mark.parametrize("secret", ["abcdef", "abcdefg", "abcdefgh"])
@pytest.mark.parametrize("before", [b"", b"a", b"ab", b"abc"])
def test_no_part_of_a_secret_is_left_at_the_end_of_an_encoding(secret: str, before: bytes) -> None:
    said = base64.b64encode(before + secret.encode()).decode()
    longest = max((form for form in encodings(secret) if form in said), key=len)
    assert said.endswith(longest)


def test_other_texts_are_left_alone() -> None:
    others = ("s3cr3t", base64.b64encode(b"another thing").decode(), quote("ü/ü"), "s3cr3t/+u key")
    assert not any(form in other for form in encodings(SECRET) for other in others)


def test_the_shortest_secret_that_is_looked_for_has_no_form_that_is_part_of_every_text() -> None:
    assert min(map(len, encodings("abcdef"))) >= 6


PHRASE = "correct/horse battery+staple"
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
    line = FrameRedactor(Redactor({"key": PHRASE})).redact_line(before + PHRASE.encode() + after)
    assert PHRASE.encode() not in line


def test_a_number_that_is_a_secret_is_taken_out() -> None:
    assert redact({"said": [1234567, 12]}, {"pin": 1234567}) == ({"said": [HIDDEN, 12]}, ("/said/0",))


def test_a_secret_that_becomes_known_later_is_taken_out_from_then_on() -> None:
    known = Redactor()
    redactor = FrameRedactor(known)
    assert redactor.redact_frame({"a": PHRASE}) == ({"a": PHRASE}, ())
    known.learn({"key": PHRASE})
    assert redactor.redact_frame({"a": PHRASE}) == ({"a": HIDDEN}, ("/a",))


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
def test_a_value_under_a_key_that_names_a_secret_is_redacted(key: str) -> None:
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


@pytest.mark.parametrize("part", few(["eyJ", "://", "bearer ", "a-", "a.", "sk-", "basic ", '"x', "token", "="], 3))
def test_a_long_text_of_any_kind_takes_no_time_to_speak_of(part: str) -> None:
    """A pattern that looks back from every place would take minutes, and the test its whole time."""
    told, _ = PLAIN.redact_frame("begin sk- = ey \"'oken:// earer asic eyJ " + part * (400_000 // len(part)))
    assert PLAIN.redact_frame(told) == (told, ())


def test_nothing_secret_leaves_a_frame_as_it_is() -> None:
    said = {"a": [1, 2.5, None, True, "", "text"], "b": {}}
    assert redact(said) == (said, ())


def test_a_pointer_escapes_slashes_and_tildes() -> None:
    assert pointer("a/b", 0, "c~d") == "/a~1b/0/c~0d"
