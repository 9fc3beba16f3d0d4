"""Where the socket of a lingering host is, and that no other user can be behind it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from plugbay.adapters.failures import SourceFailed
from plugbay.adapters.linger_client import FolderRefused, LingeringHost, address_of, socket_folder
from plugbay.model.errors import Code
from tests.adapters.test_linger import process_of
from tests.adapters.test_pin import pinned
from tests.support.patience import PATIENCE


def test_the_folder_is_made_for_this_user_alone(tmp_path: Path) -> None:
    folder = socket_folder((str(tmp_path / "none" / "x"), str(tmp_path / "sockets")))
    assert folder == str(tmp_path / "sockets")
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    assert socket_folder((folder,)) == folder


def test_a_folder_that_others_can_use_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(FolderRefused, match="mode 700"):
        socket_folder((str(open_to_all),))
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(FolderRefused):
        socket_folder((str(tmp_path / "link"),))
    with pytest.raises(FolderRefused, match="no folder"):
        socket_folder((str(tmp_path / "none" / "x"),))


def test_the_address_depends_on_the_pin_and_the_interpreter() -> None:
    one = address_of("pin", "/usr/bin/python3", "/run")
    assert one == address_of("pin", "/usr/bin/python3", "/run")
    assert len({one, address_of("other", "/usr/bin/python3", "/run"), address_of("pin", "/opt/python", "/run")}) == 3
    assert len(one) <= 107


def test_a_host_that_cannot_be_reached_fails_the_call(tmp_path: Path) -> None:
    pin = pinned()
    lingering = LingeringHost(pin, sys.executable, str(tmp_path / ("x" * 120)))
    with pytest.raises(SourceFailed, match="cannot be reached") as failed:
        lingering.call(pin.exports[0], {})
    assert failed.value.failure().code == Code.UNAVAILABLE


def test_a_pin_that_cannot_be_hosted_fails_the_call(tmp_path: Path) -> None:
    """The process starts, and its host does not."""
    pin = pinned()
    pin.settings.config, pin.settings.state, pin.settings.logs = None, str(tmp_path / "s"), str(tmp_path / "logs")
    with TemporaryDirectory(prefix="pb-") as sockets:
        with pytest.raises(SourceFailed, match="cannot be found any more") as failed:
            LingeringHost(pin, sys.executable, sockets).call(pin.exports[0], {})
        os.kill(process_of(sockets), signal.SIGTERM)
    assert failed.value.failure().code == Code.UNAVAILABLE
    assert "cannot be found any more" in (tmp_path / "logs" / "adapter.log").read_text()


def test_an_adapter_for_one_call_loads_nothing_heavy() -> None:
    """Its greeting has 2 s, on a machine that may be busy."""
    program = (
        "import sys, plugbay.adapters.__main__, plugbay.adapters.linger_client\n"
        "print(*{'asyncio', 'dataclasses', 'msgspec', 'pydantic', 'plugbay.host', 'typing'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout.strip(), done.stderr) == ("", "")
