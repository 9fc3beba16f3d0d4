"""The tour of docs/scale.md is true: `make cluster` starts real processes, and the commands of the page run there."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.test_control_plane_page import bash, commands
from tests.docs.test_snippets import ROOT, pattern, snippets
from tests.support.patience import PATIENCE, until_blocking
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

PAGE = ROOT / "docs" / "scale.md"
KIND = "cluster"
PROGRAM = ROOT / "deploy" / "cluster.py"
MARK = "CLUSTER_OF_THE_TEST"
ALL = {"postgresql", "nats", "registry", "gw-1", "gw-2", "n1", "n2", "n3", "haproxy"}


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that the user postgres can reach, as a reader's own clone."""
    folder = Path(tempfile.mkdtemp(prefix="plugbay-tour-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def marked(mark: str) -> list[int]:
    """The processes that have this mark in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}".encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:
            continue  # ended meanwhile, or another user's
    return found


@contextmanager
def running(place: Path, mark: str) -> Iterator[subprocess.Popen[str]]:
    """The cluster, once it has printed how it is stopped."""
    command = [sys.executable, str(PROGRAM), "--port", "0"]
    with (
        open(place / "log", "w") as log,
        subprocess.Popen(
            command, cwd=place, env={**os.environ, MARK: mark}, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            said = ""
            while "Ctrl-C stops everything." not in said:
                line = process.stdout.readline()
                assert line, f"{said}\n{(place / 'log').read_text()}"
                said += line
            assert re.search(r"dashboard  http://127\.0\.0\.1:\d+/login/", said)
            yield process
        finally:
            process.kill()


@exhaustive
@requirement("host:cluster-tour")
def test_the_tour_of_a_cluster_does_what_the_page_says_and_leaves_no_process(place: Path) -> None:
    mark = secrets.token_hex(8)
    steps = [step for found, _, body, _ in snippets(PAGE) if found == KIND for step in commands(body)]
    with running(place, mark) as process:
        assert {path.stem for path in (place / ".plugbay" / "cluster").glob("*.pid")} == ALL
        with bash(place) as shell:
            for command, expected in steps:
                said = shell.run(command)
                assert re.fullmatch(pattern(expected) + r"\s*", said), f"$ {command}\n{said}"
        assert len(marked(mark)) >= len(ALL) - 2
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    assert len(steps) > 10
    assert marked(mark) == []
    with running(place, mark) as process:  # again, on what the first start has made; then it is killed
        process.kill()
        process.wait(PATIENCE)
    until_blocking(lambda: marked(mark) == [])
