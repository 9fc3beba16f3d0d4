"""A command that was forked is what a command that was started would be."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import environment, is_alive, wait_until
from tests.support.commands import Command, plugbay, started
from tests.support.patience import PATIENCE
from tests.support.plugins import write_plugin
from tests.support.tiers import exhaustive, first_alone

ENDS = {
    "well": ["paths", "--json"],
    "help": ["call", "--help"],
    "usage": ["frobnicate"],
    "nothing there": ["inspect", "nowhere"],
    "a problem": ["inspect", "broken", "--json"],
    "letters": ["inspect", "grüße-\udcff"],
}


@exhaustive
@pytest.mark.parametrize("words", first_alone(ENDS.values()), ids=ENDS)
def test_it_says_the_same_and_leaves_with_the_same_status(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "rterm-plugin.json").write_text("{}")
    forked, anew = (way(*words, cwd=tmp_path, env=environment(tmp_path)) for way in (plugbay, started))
    assert (forked.returncode, forked.stdout, forked.stderr) == (anew.returncode, anew.stdout, anew.stderr)
    assert forked.stdout + forked.stderr


@exhaustive
def test_what_nobody_reads_any_more_ends_it_in_the_same_way(tmp_path: Path) -> None:
    ends = []
    for reader_is_gone in (False, True):
        given, (out, say), (err, complain) = os.open(os.devnull, os.O_RDONLY), os.pipe(), os.pipe()
        if reader_is_gone:
            os.close(out)
        process = Command(["--version"], [given, say, complain], tmp_path, environment(tmp_path))
        for stream in (given, say, complain):
            os.close(stream)
        with open(err, "rb") as said:
            ends.append((process.wait(PATIENCE), b"BrokenPipeError" in said.read()))
        if not reader_is_gone:
            os.close(out)
    assert ends == [(0, False), (1, False)]


@exhaustive
def test_it_reads_all_of_stdin_and_is_read_to_the_end(tmp_path: Path) -> None:
    write_plugin(tmp_path)
    text = b'{"text":"%s"}' % (b"x" * 500_000)
    done = plugbay("call", "p", "t", "-", "--no-sandbox", stdin=text, cwd=tmp_path, env=environment(tmp_path))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(text)


@exhaustive
def test_it_has_its_own_environment_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugbay("--version")
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    ours = plugbay("paths", "--json", cwd=tmp_path)
    theirs = plugbay("paths", "--json", cwd=tmp_path, env=environment(tmp_path))
    assert (b"/elsewhere" in ours.stdout, b"/elsewhere" in theirs.stdout) == (True, False)


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[tuple[Command, int]]:
    """A command that waits for its input, and the descriptor it reads that from."""
    write_plugin(tmp_path)
    given, give = os.pipe()
    silent = os.open(os.devnull, os.O_WRONLY)
    yield Command(["call", "p", "t", "-"], [given, silent, silent], tmp_path, environment(tmp_path)), given
    for stream in (given, give, silent):
        os.close(stream)


def test_a_signal_is_its_status_and_concerns_no_other(waiting: tuple[Command, int]) -> None:
    process, _ = waiting
    assert plugbay("--version").returncode == 0
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(PATIENCE) == -signal.SIGKILL
    assert plugbay("--version").returncode == 0


@exhaustive
def test_it_holds_its_three_streams_and_no_descriptor_of_the_server(waiting: tuple[Command, int]) -> None:
    process, given = waiting
    held = Path(f"/proc/{process.pid}/fd")
    wait_until(lambda: os.path.samestat((held / "0").stat(), os.fstat(given)), "its stdin")
    wait_until(lambda: sorted(os.listdir(held)) == ["0", "1", "2"], "all else to be closed")
    os.kill(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)


@exhaustive
def test_one_that_takes_too_long_is_killed(waiting: tuple[Command, int]) -> None:
    process, _ = waiting
    with pytest.raises(TimeoutError):
        process.wait(0.01)
    assert not is_alive(process.pid) and process.poll() == -signal.SIGKILL


@exhaustive
def test_it_can_be_looked_at_and_one_that_has_ended_is_sent_nothing(waiting: tuple[Command, int]) -> None:
    process, _ = waiting
    assert process.poll() is None
    process.kill()
    wait_until(lambda: process.poll() is not None, "its end")
    assert process.poll() == process.wait(0) == -signal.SIGKILL
    process.terminate()
