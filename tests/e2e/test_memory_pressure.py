"""Memory that runs out: in a plugin, in the control group of a host, and in the host itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plugbay.process.sandbox.cgroup import Cgroups
from plugbay.process.sandbox.policy import MIB, Limits
from tests.support.machine import needs_cgroups
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

pytestmark = exhaustive

ROOT = Path(__file__).parents[2]


def pressed(folder: Path, memory: int | None = None, **settings: Any) -> dict[str, Any] | int:
    """What came of a host in a control group of so many MiB; its exit status if it died."""
    folder.chmod(0o755)  # confined plugins are other users
    group = None if memory is None else Cgroups().create("pressed")
    command = [sys.executable, "-m", "tests.e2e.pressed_host", str(folder), json.dumps(settings)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        try:
            if group is not None:
                group.limit(Limits(memory=(memory or 0) * MIB, processes=1000, cpu=2))
                group.join(host.pid)
            told, _ = host.communicate(b"go\n", PATIENCE)
        finally:
            host.kill()
            if group is not None:
                group.close()
    found: dict[str, Any] = json.loads(told) if told else {}
    return found or host.returncode


@needs_cgroups
@requirement("host:oom-named")
@pytest.mark.parametrize(("confined", "sure"), [(True, "it was killed"), (False, "it was probably killed")])
def test_a_plugin_that_uses_up_the_memory_of_its_hosts_group_is_killed_and_the_failure_names_the_group(
    tmp_path: Path, confined: bool, sure: str
) -> None:
    found = pressed(tmp_path, 300, confined=confined, asked={"use": 500})
    assert isinstance(found, dict), "the host lives"
    assert found["before"] == ["ok", "ok"] and found["large"]["code"] == "crashed"
    assert f"{sure} because the host's control group, which has 300 MiB, ran out of memory" in found["large"]["cause"]
    assert found["large"]["hint"].startswith("give the host more memory")
    assert (found["after"], found["same"], found["again"], found["noted"]) == ("ok", True, "ok", 1)


@needs_cgroups
def test_the_same_plugin_lives_where_its_host_has_that_much(tmp_path: Path) -> None:
    found = pressed(tmp_path, 900, confined=True, asked={"use": 500})
    assert isinstance(found, dict) and (found["large"], found["noted"]) == ("ok", 0)


@needs_cgroups
@requirement("host:oom-plugin-first")
@pytest.mark.parametrize(("score", "lives"), [(None, True), (0, False)])
def test_the_kernel_kills_a_plugin_before_a_host_that_is_larger(tmp_path: Path, score: int | None, lives: bool) -> None:
    scores = {} if score is None else {"score": score}
    found = pressed(tmp_path, 400, confined=True, ballast=200, asked={"use": 180}, **scores)
    if lives:
        assert isinstance(found, dict) and found["kept"] == 200
        assert (found["large"]["code"], found["after"], found["again"]) == ("crashed", "ok", "ok")
    else:
        assert found == -9, "without the score the larger process is killed: the host"


@requirement("host:no-memory-left")
@pytest.mark.parametrize(("spare", "lives"), [(10, False), (200, True)])
def test_a_message_for_which_the_host_has_no_memory_ends_its_call_alone(
    tmp_path: Path, spare: int, lives: bool
) -> None:
    found = pressed(tmp_path, confined=False, spare=spare, asked={"answer": 14})
    assert isinstance(found, dict), "the host lives"
    if lives:
        assert found["large"] == "ok"
    else:
        assert (found["large"]["code"], found["large"]["execution_outcome"]) == ("overloaded", "unknown")
        assert "ran out of memory for a message of the plugin" in found["large"]["message"]
    assert (found["after"], found["same"], found["again"]) == ("ok", True, "ok")
