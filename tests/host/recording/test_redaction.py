"""Secrets are removed from output: values first, then a real process that prints its key everywhere."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

import pytest

from plugbay import Host
from plugbay.host.config import settings
from plugbay.host.recording.redaction import EXPIRED_TOKENS, HIDDEN, Redactor, encodings
from plugbay.model.errors import Code, Failure
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement

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


@requirement("vai:host-redaction-forms")
def test_a_secret_truncated_in_a_diagnosis_is_redacted_too() -> None:
    redactor = Redactor({"key": "swordfish/and/sharks+2"})
    for size in range(8, len("swordfish/and/sharks+2") + 1):
        cut = "swordfish/and/sharks+2"[:size]
        assert redactor.redact_text(f"bad {cut!r}, {cut}") == f"bad '{HIDDEN}', {HIDDEN}"
        assert redactor.redact_line(f"key {cut}…".encode()) == f"key {HIDDEN}…".encode()
    assert redactor.redact_line(b"swordfish%2Fand%2Fsha") == HIDDEN.encode()
    assert redactor.redact_text("swords and sharks") == "swords and sharks"


def test_what_is_data_loses_whole_secrets_only() -> None:
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
def test_at_the_end_of_what_is_encoded_nothing_of_it_is_left_over(secret: str, before: bytes) -> None:
    said = base64.b64encode(before + secret.encode()).decode()
    longest = max((form for form in encodings(secret) if form in said), key=len)
    assert said.endswith(longest)


def test_what_is_something_else_is_left_alone() -> None:
    others = ("s3cr3t", base64.b64encode(b"another thing").decode(), quote("ü/ü"), "s3cr3t/+u key")
    assert not any(form in other for form in encodings(SECRET) for other in others)


def test_the_shortest_secret_that_is_looked_for_has_no_form_that_is_part_of_every_text() -> None:
    assert min(map(len, encodings("abcdef"))) >= 6
