"""Which host a command asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.cli import target
from plugbay.cli.exit_codes import Refusal
from tests.support.requirements import requirement


@requirement("host:which-host")
def test_a_server_and_a_folder_are_two_hosts(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="two different hosts"):
        target.choose(tmp_path, "http://127.0.0.1:1", None)


@requirement("host:which-host")
def test_options_of_a_local_host_need_a_folder() -> None:
    with pytest.raises(Refusal, match="--plugins DIR"):
        target.choose(None, None, None, grants=["network"])


@requirement("host:which-host")
def test_a_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.plugins import write_plugin

    monkeypatch.chdir(tmp_path)
    write_plugin(tmp_path / "plugins", "p")
    chosen = target.choose(Path("plugins"), None, None)
    assert (chosen.client, chosen.asked, chosen.name) == (None, "plugins", "a host of this command for plugins")
