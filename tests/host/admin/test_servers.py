"""MCP servers that an operator declares: credentials become secrets, and a removed server leaves no trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.contracts.mcp.remote import TOKENS_FILE
from plugbay.host.admin.servers import (
    BUNDLE_FOLDER,
    ServerEntry,
    forget_server,
    parse_header,
    parse_variable,
    remove_bundle,
    save_secrets,
    summarize,
)
from plugbay.host.catalog.approvals import Approval
from plugbay.host.config import settings
from plugbay.host.config.sections import ServerConfig
from plugbay.host.confinement.policy import own_folder


@pytest.mark.parametrize(
    ("name", "value", "kept", "secret"),
    [
        ("Authorization", "Bearer abc", "Bearer secret://Authorization", {"Authorization": "abc"}),
        ("X-Api-Key", "abc", "secret://X-Api-Key", {"X-Api-Key": "abc"}),
        ("Authorization", "Bearer secret://mine", "Bearer secret://mine", {}),
        ("Authorization", "Bearer ${TOKEN}", "Bearer ${TOKEN}", {}),
        ("Accept-Language", "en", "en", {}),
    ],
)
def test_a_credential_in_a_header_becomes_a_secret(name: str, value: str, kept: str, secret: dict[str, str]) -> None:
    entry = ServerEntry("hub", url="https://hub.example/mcp")
    entry.add_header(name, value)
    assert entry.section() == {"url": "https://hub.example/mcp", "headers": {name: kept}}
    assert entry.secrets == secret and "abc" not in repr(entry)


@pytest.mark.parametrize(
    ("name", "value", "kept", "secret"),
    [
        ("GITHUB_TOKEN", "abc", "secret://GITHUB_TOKEN", {"GITHUB_TOKEN": "abc"}),
        ("GITHUB_TOKEN", "secret://t", "secret://t", {}),
        ("GITHUB_TOKEN", "${T}", "${T}", {}),
        ("GITHUB_TOKEN", "", "", {}),
        ("LANGUAGE", "en", "en", {}),
    ],
)
def test_a_credential_in_a_variable_becomes_a_secret(name: str, value: str, kept: str, secret: dict[str, str]) -> None:
    entry = ServerEntry("x", ["run"])
    entry.add_variable(name, value)
    assert (entry.section(), entry.secrets) == ({"command": ["run"], "env": {name: kept}}, secret)


def test_a_line_that_is_no_pair_is_refused_without_its_value() -> None:
    assert parse_variable("A=b=c") == ("A", "b=c")
    assert parse_header("A : b:c ") == ("A", "b:c")
    for parse, line in ((parse_variable, "=hidden"), (parse_variable, "A"), (parse_header, ": hidden")):
        with pytest.raises(ValueError, match="is not") as raised:
            parse(line)
        assert "hidden" not in str(raised.value)


def test_a_url_is_checked_unless_a_variable_is_part_of_it() -> None:
    entry = ServerEntry("hub")
    for wrong in ("http://hub.example/mcp", "https://", "ftp://hub.example"):
        with pytest.raises(ValueError, match=r"^URL "):
            entry.set_url(wrong)
    assert entry.url == ""
    entry.set_url("http://${HUB}/mcp?key=1")
    assert entry.shown == "http://${HUB}/mcp"
    assert ServerEntry("x", ["run", "a b"]).shown == "run 'a b'"


def test_secrets_are_added_and_missing_ones_are_named(tmp_path: Path) -> None:
    save_secrets(tmp_path, "x", {"a": "1"})
    save_secrets(tmp_path, "x", {"b": "2"})
    save_secrets(tmp_path, "x", {})
    assert settings.load_secrets(tmp_path, "x") == {"a": "1", "b": "2"}
    entry = ServerEntry("x", headers={"Authorization": "Bearer secret://c", "X": "y"}, env={"A": "secret://a"})
    assert entry.missing_secrets(tmp_path) == ["c"]


def test_a_removed_server_leaves_neither_secrets_nor_a_login_nor_its_bundle(tmp_path: Path) -> None:
    bundle = tmp_path / BUNDLE_FOLDER / "notes-1"
    bundle.mkdir(parents=True)
    save_secrets(tmp_path, "x", {"a": "1"})
    settings.save_login(tmp_path, "x", {"id": "1"})
    tokens = own_folder(tmp_path, "x") / TOKENS_FILE
    tokens.parent.mkdir(parents=True)
    tokens.write_text("{}")
    server = ServerConfig(bundle=str(bundle))
    assert forget_server(tmp_path, "x", server, [server]) == (False, ["a"])
    assert settings.load_secrets(tmp_path, "x") == {} and not settings.load_login(tmp_path, "x")
    assert not tokens.exists() and bundle.exists(), "another server has the same bundle"
    assert forget_server(tmp_path, "x", server, []) == (False, [])
    assert not bundle.exists()


def test_only_unpacked_bundles_are_removed(tmp_path: Path) -> None:
    own = tmp_path / "mine"
    own.mkdir()
    remove_bundle(own, tmp_path / "state")
    assert own.exists()


def test_an_offer_in_a_few_words() -> None:
    offer = {"tools": [{"name": "a"}, {"name": "b"}], "resources": [], "prompts": [{"name": "p"}]}
    assert summarize(Approval(offer)) == "2 tools, 1 prompt"
    assert summarize(None) == ""
