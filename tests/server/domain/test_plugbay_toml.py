"""plugbay.toml is changed in one place and stays as it was in all others."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.model.errors import ConfigInvalid
from plugbay.server.domain.plugbay_toml import change_grants

BEFORE = """\
# Ours.
[host]
log_level = "warn"  # quiet

[plugins."example.weather"]
enabled = true  # for now
grants = ["tool.execute"]
"""


def journal(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir(exist_ok=True)
    return tmp_path / "data" / "new"


@pytest.mark.parametrize("text", ["", "# only words\n", BEFORE, '[plugins]\nq = { grants = ["z"] }\n'])
def test_a_grant_is_added_whatever_the_file_looks_like(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plugbay.toml"
    path.write_text(text)
    config = change_grants(path, journal(tmp_path), "other.one", lambda old: [*old, "network"])
    assert config.plugin("other.one").grants == ["network"]
    assert path.read_text().startswith(text)


def test_comments_and_everything_else_stay(tmp_path: Path) -> None:
    path = tmp_path / "plugbay.toml"
    path.write_text(BEFORE)
    path.chmod(0o640)
    number = path.stat().st_ino
    change_grants(path, journal(tmp_path), "example.weather", lambda old: [*old, "network"])
    assert path.read_text() == BEFORE.replace('["tool.execute"]', '["tool.execute", "network"]')
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.stat().st_ino == number, "another file took its name, which removes the covers of running plugins"


def test_a_file_that_is_not_there_is_made_for_us_alone(tmp_path: Path) -> None:
    path = tmp_path / "plugbay.toml"
    change_grants(path, journal(tmp_path), "p", lambda _: ["network"])
    assert path.read_text() == '[plugins.p]\ngrants = ["network"]\n'
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "plugbay.toml"
    path.write_text("[host]\nlog_levle = 1\n")
    with pytest.raises(ConfigInvalid):
        change_grants(path, journal(tmp_path), "p", lambda _: ["network"])
    with pytest.raises(ConfigInvalid):
        change_grants(tmp_path / "other.toml", journal(tmp_path), "p", lambda _: [" spaces "])
    assert path.read_text() == "[host]\nlog_levle = 1\n" and not (tmp_path / "other.toml").exists()
