"""The helper, run as its host runs it, and its parts."""

from __future__ import annotations

import itertools
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from plugbay.process import warden_main
from plugbay.process.warden_main import (
    Search,
    Sweeper,
    environ_of,
    is_bare,
    kill_all,
    kill_if,
    marks,
    settled_marks,
    start_of,
)
from tests.process.helpers import exists, state
from tests.support.patience import PATIENCE, until_blocking

MARK = f"{os.getpid()}.1.test-warden-main"
AA, BB, CC, EE = (f"{name}{os.getpid()}" for name in ("aa", "bb", "cc", "ee"))
"""Tokens. Another run of these tests beside this one has others."""


@contextmanager
def marked(token: str, mark: str = MARK) -> Iterator[subprocess.Popen[bytes]]:
    """A process that carries the marks, in a session of its own."""
    env = {"PLUGBAY_HOST": mark, "PLUGBAY_CHILD": token}
    with subprocess.Popen(["/bin/sleep", "600"], env=env, start_new_session=True) as process:
        try:
            until_blocking(lambda: marks(environ_of(process.pid)) == (mark.encode(), token.encode()))
            yield process
        finally:
            process.kill()


@contextmanager
def helper(host: int | None = None, mark: str = MARK) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-I", "-S", warden_main.__file__, mark, str(host or os.getpid())]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, 0, stdin=pipe, stdout=pipe, env={"A": "b"}, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def ask(process: subprocess.Popen[bytes], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text.encode())
    process.stdin.flush()


def answer(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 10)[0], "no answer"
    return process.stdout.readline().decode().strip()


def test_a_sweep_kills_the_processes_with_the_token_and_no_other() -> None:
    with marked(AA) as target, marked(BB) as other, helper() as process:
        ask(process, f"sweep {AA}\n")
        assert answer(process) == f"swept {AA} 1"
        assert target.wait(PATIENCE) == -signal.SIGKILL
        assert other.poll() is None


def test_a_sweep_that_finds_nothing_is_answered() -> None:
    with helper() as process:
        ask(process, "sweep nobody\n")
        assert answer(process) == "swept nobody 0"


def test_requests_that_come_together_are_all_answered_with_their_own_counts() -> None:
    with marked(AA), marked(AA), marked(BB), helper() as process:
        ask(process, f"sweep {AA}\nsweep {BB}\nswe")
        ask(process, f"ep {CC}\n")
        answers = {answer(process) for _ in range(3)}
        assert answers == {f"swept {AA} 2", f"swept {BB} 1", f"swept {CC} 0"}


def test_the_end_of_the_host_kills_everything_with_its_mark_and_ends_the_helper() -> None:
    with marked(AA) as one, marked(BB) as two, marked(AA, "9.9.other") as stranger, helper() as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
        assert one.wait(PATIENCE) == two.wait(PATIENCE) == -signal.SIGKILL
        assert stranger.poll() is None


def test_children_live_until_the_given_time_and_no_longer() -> None:
    with marked(AA) as one, marked(AA, "9.9.other") as stranger, helper() as process:
        ask(process, f"until {warden_main.boot_time() + 3600!r}\nsweep nobody\n")
        assert answer(process) == "swept nobody 0"
        assert one.poll() is None, "its time is not over"
        ask(process, f"until {warden_main.boot_time() + 0.2!r}\n")
        assert one.wait(PATIENCE) == -signal.SIGKILL
        env = {"PLUGBAY_HOST": MARK, "PLUGBAY_CHILD": BB}
        with subprocess.Popen(["/bin/sleep", "600"], env=env, start_new_session=True) as late:
            assert late.wait(PATIENCE) == -signal.SIGKILL, "nor does one live that starts after that"
        ask(process, f"until {warden_main.boot_time() + 3600!r}\nsweep nobody\n")
        assert answer(process) == "swept nobody 0"
        assert stranger.poll() is None and process.poll() is None


def test_a_fork_that_holds_the_pipe_open_does_not_hide_the_hosts_death() -> None:
    host = subprocess.Popen(["/bin/sleep", "600"])
    with marked(AA) as target, helper(host.pid) as process:
        ask(process, "sweep nobody\n")
        assert answer(process) == "swept nobody 0"
        host.kill()
        host.wait(PATIENCE)
        assert process.wait(PATIENCE) == 0
        assert target.wait(PATIENCE) == -signal.SIGKILL
        assert process.stdin is not None
        assert not process.stdin.closed


def test_a_host_that_died_before_the_helper_was_ready_is_noticed() -> None:
    with subprocess.Popen(["/bin/true"]) as host:
        host.wait(PATIENCE)
    with marked(AA) as target, helper(host.pid) as process:
        assert process.wait(PATIENCE) == 0
        assert target.wait(PATIENCE) == -signal.SIGKILL


def test_goodbye_ends_the_helper_after_a_last_look() -> None:
    with marked(AA) as target, helper() as process:
        ask(process, "bye\n")
        assert process.wait(PATIENCE) == 0
        assert target.wait(PATIENCE) == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_everything_does_not_take_the_helper(number: signal.Signals) -> None:
    with helper() as process:
        ask(process, "sweep nobody\n")
        answer(process)
        process.send_signal(number)
        ask(process, "sweep somebody\n")
        assert answer(process) == "swept somebody 0"


def test_a_host_that_does_not_listen_any_more_counts_as_gone() -> None:
    with marked(AA) as target, helper() as process:
        assert process.stdout is not None
        process.stdout.close()
        ask(process, "sweep nobody\n")
        assert process.wait(PATIENCE) == 0
        assert target.wait(PATIENCE) == -signal.SIGKILL


def test_the_script_loads_almost_nothing() -> None:
    probe = (
        "import sys; before = set(sys.modules); "
        f"sys.path.insert(0, {str(Path(warden_main.__file__).parent)!r}); import warden_main; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", probe], capture_output=True, check=True, text=True)
    heavy = {
        "asyncio",
        "dataclasses",
        "inspect",
        "json",
        "re",
        "subprocess",
        "threading",
        "typing",
        "plugbay",
    }
    assert {"warden_main", "select", "signal"} <= set(done.stdout.split())
    assert not heavy & set(done.stdout.split())


# The parts.


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (b"", (b"", b"")),
        (b"PATH=/bin\0HOME=/\0", (b"", b"")),
        (b"PATH=/bin\0PLUGBAY_HOST=1.2.x\0PLUGBAY_CHILD=t\0", (b"1.2.x", b"t")),
        (b"PLUGBAY_CHILD=t\0PLUGBAY_HOST=1.2.x", (b"1.2.x", b"t")),
        (b"PLUGBAY_HOST=1.2.x\0", (b"1.2.x", b"")),
        (b"PLUGBAY_CHILD=t\0", (b"", b"")),
        (b"NOTE=PLUGBAY_HOST=1.2.x\0", (b"", b"")),
        (b"PLUGBAY_HOSTS=1.2.x\0", (b"", b"")),
    ],
)
def test_marks_are_read_from_whole_variables_only(environ: bytes, expected: tuple[bytes, bytes]) -> None:
    assert marks(environ) == expected


def test_a_large_environment_is_read_to_its_end() -> None:
    env = {f"FILLER{number}": "x" * 100_000 for number in range(10)} | {"PLUGBAY_HOST": MARK}
    with subprocess.Popen(["/bin/sleep", "600"], env=env) as process:
        try:
            until_blocking(lambda: marks(environ_of(process.pid))[0] == MARK.encode())
        finally:
            process.kill()


def test_a_dead_process_has_no_environment() -> None:
    with subprocess.Popen(["/bin/true"], env={"PLUGBAY_HOST": MARK}) as process:
        until_blocking(lambda: not exists(process.pid))
        assert not environ_of(process.pid)
        assert start_of(process.pid) == b""
    assert environ_of(process.pid) is None
    assert start_of(process.pid) == b""


def test_only_a_process_that_still_has_the_mark_is_killed() -> None:
    """A pid that was reused between the look and the kill belongs to a process without the mark."""
    with marked(AA) as process:
        assert not kill_if(process.pid, lambda host, child: child == BB.encode())
        assert process.poll() is None
        assert kill_if(process.pid, lambda host, child: child == AA.encode())
        assert process.wait(PATIENCE) == -signal.SIGKILL
    assert not kill_if(process.pid, lambda host, child: True)


class Looks(Search):
    """Stands for the looks through /proc: what each finds, who is in an exec in each, and how many there were."""

    def __init__(self, *found: list[tuple[int, bytes]], blank: Iterable[set[int]] = ()) -> None:
        super().__init__()
        self.found = list(found)
        self.blanks = iter(blank)
        self.count = 0

    def kill(self, wanted: object, spared: object) -> list[tuple[int, bytes]]:
        self.count += 1
        self.blank = {(pid, b"1") for pid in next(self.blanks, set())}
        return self.found.pop(0) if self.found else []


def test_requests_share_one_look(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    looks = Looks([(50, b"a"), (51, b"a"), (52, b"b")])
    sweeper = Sweeper(os.getpid())
    sweeper.search = looks
    sweeper._hear(b"sweep a\nsweep b\nsweep c\n")
    assert sweeper._look()
    assert capfdbinary.readouterr().out == b"swept c 0\n"
    assert not sweeper._look()
    assert capfdbinary.readouterr().out == b"swept a 2\nswept b 1\n"
    assert looks.count == 2


def test_messages_do_not_shorten_the_pause_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message ends one wait for messages; a stream of short calls sends three for each of them."""
    now = 0.0

    def listen(timeout: float | None) -> None:
        nonlocal now
        now += 0.001
        heard.append(now)

    heard: list[float] = []
    sweeper = Sweeper(os.getpid())
    monkeypatch.setattr(Sweeper, "_listen", lambda _, timeout: listen(timeout))
    monkeypatch.setattr(warden_main, "time", SimpleNamespace(monotonic=lambda: now))
    sweeper._pause(warden_main.PAUSE_MS)
    assert len(heard) >= warden_main.PAUSE_MS, "a message each millisecond"


def test_a_process_that_does_not_die_does_not_hold_up_the_answer_for_ever(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    sweeper = Sweeper(os.getpid())
    sweeper.search = Looks(*[[(50, b"a")]] * warden_main.PATIENCE)
    sweeper._hear(b"sweep a\n")
    for _ in range(warden_main.PATIENCE):
        sweeper._look()
    assert capfdbinary.readouterr().out == b"swept a 1\n"


@pytest.mark.parametrize(
    ("found", "calm", "looks", "killed"),
    [
        ([], 1, 1, 0),
        ([[(5, b"")], [(5, b""), (6, b"")]], 1, 3, 2),
        ([], 5, 5, 0),
        ([[], [], [(5, b"")]], 5, 8, 1),
    ],
)
def test_looking_goes_on_until_enough_looks_in_a_row_find_nothing(
    monkeypatch: pytest.MonkeyPatch, found: list[list[tuple[int, bytes]]], calm: int, looks: int, killed: int
) -> None:
    recorder = Looks(*found)
    monkeypatch.setattr(warden_main, "SETTLE_MS", 0)
    assert kill_all(lambda host, child: True, calm, recorder) == killed
    assert recorder.count == looks


def test_an_answer_waits_for_processes_that_may_be_in_the_middle_of_an_exec(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    sweeper = Sweeper(os.getpid())
    sweeper.search = Looks(*[[]] * 30, [(50, b"a")], blank=[{50}] * 30)
    sweeper._hear(b"sweep a\n")
    for _ in range(32):
        assert capfdbinary.readouterr().out == b""
        sweeper._look()
    assert capfdbinary.readouterr().out == b"swept a 1\n"


def test_a_last_look_is_repeated_while_a_process_may_be_in_the_middle_of_an_exec() -> None:
    looks = Looks(blank=[{50}] * 3)
    assert kill_all(lambda host, child: True, 1, looks) == 0
    assert looks.count == 4


def test_a_process_that_replaces_itself_all_the_time_shows_its_marks_at_every_look(tmp_path: Path) -> None:
    program = tmp_path / "again"
    program.write_text('#!/bin/sh\nexec "$0"\n')
    program.chmod(0o755)
    env = {"PLUGBAY_HOST": MARK, "PLUGBAY_CHILD": EE}
    with subprocess.Popen([program], env=env, start_new_session=True) as process:
        try:
            until_blocking(lambda: environ_of(process.pid) == b"")  # as it is in the middle of exec
            assert {settled_marks(process.pid) for _ in range(500)} == {(MARK.encode(), EE.encode())}
        finally:
            process.kill()


def test_who_comes_into_an_exec_later_is_not_waited_for(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Other programs start all the time; whoever has the mark was in doubt at the first look, or was found."""
    looks = Looks(blank=({number, number + 1} for number in itertools.count()))
    assert kill_all(lambda host, child: True, 1, looks) == 0
    assert looks.count == 3

    sweeper = Sweeper(os.getpid())
    sweeper.search = Looks(blank=({number, number + 1} for number in itertools.count()))
    sweeper._hear(b"sweep a\n")
    for _ in range(3):
        assert capfdbinary.readouterr().out == b""
        sweeper._look()
    assert capfdbinary.readouterr().out == b"swept a 0\n"


def test_what_a_killed_process_has_just_started_is_in_doubt_anew(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    sweeper = Sweeper(os.getpid())
    sweeper.search = Looks([], [(50, b"a")], [], [(51, b"a")], blank=[{50}, {51}, {51}])
    sweeper._hear(b"sweep a\n")
    for _ in range(5):
        assert capfdbinary.readouterr().out == b""
        sweeper._look()
    assert capfdbinary.readouterr().out == b"swept a 2\n"


def test_a_process_that_never_comes_out_of_its_exec_does_not_hold_up_the_answer_for_ever(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    sweeper = Sweeper(os.getpid())
    sweeper.search = Looks(blank=itertools.repeat({50}))
    sweeper._hear(b"sweep a\n")
    for _ in range(warden_main.PATIENCE):
        assert capfdbinary.readouterr().out == b""
        sweeper._look()
    assert capfdbinary.readouterr().out == b"swept a 0\n"


def test_a_program_without_any_environment_is_in_no_doubt() -> None:
    with subprocess.Popen(["/bin/sleep", "600"], env={}) as process:
        try:
            until_blocking(lambda: is_bare(process.pid))  # before, it is still in the middle of exec
            search = Search()
            search.kill(lambda host, child: False, set())
            assert environ_of(process.pid) == b""
            assert is_bare(process.pid) and not is_bare(os.getpid())
            assert (process.pid, start_of(process.pid)) not in search.blank
        finally:
            process.kill()


def test_who_has_the_mark_and_cannot_be_killed_at_once_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the middle of an exec when its mark is read again before the kill."""
    monkeypatch.setattr(warden_main, "kill_if", lambda pid, wanted: False)
    with marked(AA) as process:
        search = Search()
        assert search.kill(lambda host, child: child == AA.encode(), set()) == []
        assert search.blank >= {(process.pid, start_of(process.pid))}


def test_a_killed_process_is_found_until_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """On its way out it has lost its environment and is not a zombie yet."""

    def of_this(host: bytes, child: bytes) -> bool:
        return child == AA.encode()

    search = Search()
    with marked(AA) as process:
        monkeypatch.setattr(warden_main, "kill_if", lambda pid, wanted: True)
        assert set(search.kill(of_this, set())) == {(process.pid, AA.encode())}
        monkeypatch.setattr(warden_main, "environ_of", lambda pid: b"")
        assert search.kill(of_this, set()) == [(process.pid, AA.encode())]
        assert search.kill(lambda host, child: child == BB.encode(), set()) == []
        process.kill()
        process.wait(PATIENCE)
        assert search.kill(of_this, set()) == []


def test_kernel_threads_are_not_taken_for_programs() -> None:
    kernel = [pid for pid in (2, 3) if state(pid) and environ_of(pid) == b""]
    assert [start_of(pid) for pid in kernel] == [b""] * len(kernel)
    assert start_of(os.getpid()) != b""
