"""Values of shared options: JSON is read strictly, and `--call` takes an export and an optional input."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import typer

from plugbay.cli.exit_codes import Refusal
from plugbay.cli.options import database_url, full_name, parse_call, read_input, read_json, read_secret


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("{a:1}", "not JSON"),
        ("{'a': 1}", "not JSON"),
        ('{"a": NaN}', "not JSON"),
        ('{"a": 1} {"b": 2}', "not JSON"),
        ('"\\ud800"', "not JSON"),
        ("\udcff", "not UTF-8"),
        ("[" * 100 + "]" * 100, "nested deeper"),
        ('{"a": 1e999}', "out of range"),
        ("", "is empty"),
        (" \n", "is empty"),
    ],
)
def test_an_input_is_read_as_strictly_as_on_the_wire(given: str, why: str) -> None:
    with pytest.raises(Refusal, match=why) as caught:
        read_json(given, "the input")
    assert caught.value.failure.code == "invalid_input"
    assert caught.value.status == 2


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ([], {}),
        (['{"a": 1}'], {"a": 1}),
        (["[1]"], [1]),
        (["null"], None),
        (["kind=green"], {"kind": "green"}),
        (["name=x", "true=1"], {"name": "x", "true": 1}),
        (["n=3", "x=0.5", "on=true", "none=null"], {"n": 3, "x": 0.5, "on": True, "none": None}),
        (['l=["a"]', 'text="3"'], {"l": ["a"], "text": "3"}),
        (["empty=", "sum=a=b", "zip=0123", "like={"], {"empty": "", "sum": "a=b", "zip": "0123", "like": "{"}),
        (["a.b=1", "a-b=2"], {"a.b": 1, "a-b": 2}),
    ],
)
def test_an_input_is_json_or_keys_with_values(words: list[str], given: object) -> None:
    assert read_input(words) == given


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["green"], "not JSON"),
        (["a=1", "b"], "'b' is not KEY=VALUE"),
        (["a=1", '{"b": 2}'], "is not KEY=VALUE"),
        (["a=1", "a=2"], "a is given twice"),
        (["=1", "a=1"], "'=1' is not KEY=VALUE"),
    ],
)
def test_words_that_are_neither_are_refused(words: list[str], why: str) -> None:
    with pytest.raises(Refusal, match=why):
        read_input(words)


def test_words_become_a_call() -> None:
    assert parse_call("greet") == ("greet", {})
    assert parse_call('greet {"name": "A b"}') == ("greet", {"name": "A b"})
    with pytest.raises(Refusal, match="the input of greet is not JSON: "):
        parse_call("greet {name}")


def test_a_full_name_keeps_the_plugin_id_once() -> None:
    assert full_name("acme/weather", "look") == "acme/weather/look"
    assert full_name("acme/weather", "acme/weather/look") == "acme/weather/look"


@pytest.mark.parametrize(("stdin", "secret"), [("key\n", "key"), ("two\nlines\n", "two\nlines"), ("", "")])
def test_a_secret_from_a_pipe_loses_its_last_line_break(
    monkeypatch: pytest.MonkeyPatch, stdin: str, secret: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
    assert read_secret("api_key") == secret


def test_a_database_url_may_be_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "database"
    path.write_text("postgresql+asyncpg://plugbay:hunter2@db/plugbay\n")
    assert database_url(f"@{path}") == "postgresql+asyncpg://plugbay:hunter2@db/plugbay"
    assert database_url("postgresql+asyncpg://db/plugbay") == "postgresql+asyncpg://db/plugbay"
    assert database_url(None) is None
    path.write_text("\n")
    with pytest.raises(typer.BadParameter, match="is empty"):
        database_url(f"@{path}")
    with pytest.raises(typer.BadParameter, match="cannot be read"):
        database_url(f"@{path}.gone")
