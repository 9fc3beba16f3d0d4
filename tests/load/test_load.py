"""The loads, shorter and smaller than `python -m tests.load` runs them."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import PATIENCE
from tests.support.requirements import requirement

ROOT = Path(__file__).parents[2]


def load(*words: str, open_files: int | None = None) -> dict[str, Any]:
    """The figures of a load, in a process with this soft limit of open files."""

    def limit() -> None:
        if open_files is not None:
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, hard))

    done = subprocess.run(
        [sys.executable, "-m", "tests.load", *words, "--json"],
        cwd=ROOT,
        capture_output=True,
        timeout=10 * PATIENCE,
        check=False,
        preexec_fn=limit,
    )
    assert done.returncode == 0, done.stderr.decode()
    figures: dict[str, Any] = json.loads(done.stdout)
    assert figures["problems"] == []
    return figures["rows"]  # type: ignore[no-any-return]


@pytest.mark.exhaustive
@requirement("host:queue-bounded")
def test_fifty_clients_get_results_or_are_told_to_come_back_later() -> None:
    rows = load("rest", "--clients", "50", "--seconds", "15")
    assert rows["isolated"]["succeeded"] and rows["worker"]["succeeded"]
    assert rows["isolated"]["refused"], "25 clients of one process at a time are too many"


@pytest.mark.exhaustive
def test_a_host_of_many_confined_plugins_needs_no_raised_limit_and_leaves_nothing() -> None:
    rows = load("fleet", "--plugins", "60", open_files=128)
    assert rows["start"]["processes"] >= 60
    assert (rows["stop"]["processes_left"], rows["stop"]["descriptors_left"]) == (0, 0)


@pytest.mark.exhaustive
def test_a_killed_server_is_ready_again() -> None:
    rows = load("restart", "--times", "1")
    assert rows["restart"]["seconds"] and rows["imports"]["seconds"]
