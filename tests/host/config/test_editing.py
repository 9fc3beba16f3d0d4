"""Edits of plugbay.toml: comments and other sections stay, and no edit makes an invalid file."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.host.config import config, editing
from plugbay.model.errors import ConfigInvalid

BEFORE = """\
# Ours.
[host]
log_level = "warn"  # quiet

[plugins."example.weather"]
enabled = true  # for now
grants = ["tool.execute"]
"""


def granted(path: Path, plugin_id: str, *grants: str) -> str:
    """The text of the file with these grants."""
    document = editing.read(path)
    editing.set_grants(document, plugin_id, lambda old: [*old, *grants])
    return editing.to_text(document, path)


@pytest.mark.parametrize("text", ["", "# only words\n", BEFORE, '[plugins]\nq = { grants = ["z"] }\n'])
def test_a_grant_is_added_to_any_valid_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plugbay.toml"
    path.write_text(text)
    changed = granted(path, "other.one", "network")
    assert config.parse(changed).plugin("other.one").grants == ["network"]
    assert changed.startswith(text)


def test_comments_and_everything_else_stay(tmp_path: Path) -> None:
    path = tmp_path / "plugbay.toml"
    path.write_text(BEFORE)
    assert granted(path, "example.weather", "network") == BEFORE.replace(
        '["tool.execute"]', '["tool.execute", "network"]'
    )


def test_a_file_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert granted(tmp_path / "plugbay.toml", "p", "network") == '[plugins.p]\ngrants = ["network"]\n'
    assert editing.servers(editing.read(tmp_path / "plugbay.toml")) == {}


def test_an_edit_that_plugbay_could_not_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid):
        granted(tmp_path / "plugbay.toml", "p", " spaces ")


@pytest.mark.parametrize(("text", "code"), [(b"[mcp", "parse_error"), (b"\xff", "unreadable")])
def test_a_file_that_cannot_be_parsed_is_refused(tmp_path: Path, text: bytes, code: str) -> None:
    path = tmp_path / "plugbay.toml"
    path.write_bytes(text)
    with pytest.raises(ConfigInvalid) as raised:
        editing.read(path)
    assert raised.value.problems[0].code == code


def test_servers_are_declared_replaced_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "plugbay.toml"
    path.write_text(BEFORE)
    document = editing.read(path)
    editing.declare_servers(document, {"x": {"command": ["a"], "env": {"A": "b"}}, "y": {"url": "https://y.example"}})
    assert 'env = {A = "b"}' in editing.to_text(document, path)
    editing.declare_servers(document, {"x": {"command": ["b"]}})
    assert editing.servers(document) == {"x": {"command": ["b"]}, "y": {"url": "https://y.example"}}
    assert [editing.remove_server(document, name) for name in ("x", "x", "y")] == [True, False, True]
    assert editing.to_text(document, path) == BEFORE
