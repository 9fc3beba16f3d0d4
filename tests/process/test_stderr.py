"""Draining stderr: bounded, harmless, never in the way; and the log behind it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from plugbay.process import stderr
from plugbay.process.stderr import CUT, RotatingLog, StderrDrain, log_name
from tests.process.helpers import Run, open_fds
from tests.support.patience import until
from tests.support.requirements import requirement

Scenario = Callable[[StderrDrain, int], Awaitable[None]]


def drained(run: Run, scenario: Scenario, log: RotatingLog | None = None) -> StderrDrain:
    """Run a scenario with a drain and the writing end of its pipe; both are closed afterwards."""

    async def main() -> StderrDrain:
        before = open_fds()
        read_end, write_end = os.pipe()
        drain = StderrDrain(asyncio.get_running_loop(), read_end, log, "[7]")
        try:
            await scenario(drain, write_end)
        finally:
            os.close(write_end)
            drain.close()
            drain.close()
        assert open_fds() == before
        return drain

    result: StderrDrain = run(main())
    return result


def writing(*pieces: bytes) -> Scenario:
    """Write pieces, each after the one before was read."""

    async def scenario(drain: StderrDrain, fd: int) -> None:
        for piece in pieces:
            os.write(fd, piece)
            drain.drain_now()

    return scenario


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"o", b"ne\nt", b"wo\n"], ["one", "two"]),
        ([b"one\r\ntwo\r\n"], ["one", "two"]),
        ([b"one\n\nthree\n"], ["one", "", "three"]),
        ([b"no newline"], ["no newline"]),
        ([b"\n"], [""]),
        ([b"caf\xc3", b"\xa9\n"], ["café"]),
    ],
)
def test_lines_are_split_wherever_the_reads_fall(run: Run, pieces: list[bytes], lines: list[str]) -> None:
    assert drained(run, writing(*pieces)).tail() == lines


def test_an_unfinished_line_is_in_the_tail_while_the_pipe_is_open(run: Run) -> None:
    async def scenario(drain: StderrDrain, fd: int) -> None:
        os.write(fd, b"done\nworking")
        await until(lambda: drain.tail() == ["done", "working"])

    drained(run, scenario)


def test_a_full_pipe_is_read_and_read_on_after_a_rest(run: Run) -> None:
    async def scenario(drain: StderrDrain, fd: int) -> None:
        os.set_blocking(fd, False)
        for number in range(1, 4):
            assert os.write(fd, b"x" * (stderr.READ_BYTES - 1) + b"\n") == stderr.READ_BYTES
            await until(lambda: len(drain.tail()) == number)  # noqa: B023
        os.write(fd, b"last words\n")
        await until(lambda: drain.tail()[-1] == "last words")

    drained(run, scenario)


def test_who_fills_its_pipe_waits_a_little(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stderr, "READING_SECONDS", 0.0)
    monkeypatch.setattr(stderr, "REST_FACTOR", 1e12)

    async def scenario(drain: StderrDrain, fd: int) -> None:
        os.write(fd, b"not much\n")
        await until(lambda: len(drain.tail()) == 1)
        assert drain._rest is None
        os.write(fd, b"x" * stderr.READ_BYTES)
        await until(lambda: drain._rest is not None)
        os.write(fd, b"unread")
        assert drain.tail()[-1].endswith(stderr.CUT), "and whoever asks for what is there gets it"
        drain.drain_now()
        drain.close()
        assert drain._rest is not None and drain._rest.cancelled()

    drained(run, scenario)


@requirement("host:stderr-flood", "host:kernel-shares")
def test_a_small_pipe_is_full_sooner(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with many pipes gets pipes of two pages."""
    monkeypatch.setattr(stderr, "READING_SECONDS", 0.0)

    async def main() -> None:
        read_end, write_end = os.pipe()
        size = fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 8192)
        drain = StderrDrain(asyncio.get_running_loop(), read_end)
        os.write(write_end, b"x" * (size - 1))
        await until(lambda: len(drain.tail()) == 1)
        assert drain._rest is None
        drain._loop.remove_reader(read_end)
        os.write(write_end, b"x" * size)
        drain._readable()
        assert drain._rest is not None
        drain.close()
        os.close(write_end)

    run(main())


FLOODS = "import sys\nfor _ in range({count}): sys.stderr.write(('x' * 63 + chr(10)) * 1024)\nprint('done', flush=True)"


@requirement("host:stderr-flood")
@pytest.mark.parametrize(("seconds", "reads_per_rest"), [(0.0003, 4), (0.002, 1)])
def test_a_flood_rests_as_long_as_it_has_cost_not_after_each_read(
    run: Run, monkeypatch: pytest.MonkeyPatch, seconds: float, reads_per_rest: int
) -> None:
    """A read takes so many seconds on the clock of the drain."""
    ticks = iter(range(1 << 30))
    monkeypatch.setattr(stderr, "time", SimpleNamespace(monotonic=lambda: next(ticks) * seconds))
    rests: list[float] = []
    reads: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        read_end, write_end = os.pipe()
        drain = StderrDrain(Recording(loop, rests), read_end)  # type: ignore[arg-type]
        read = drain._read

        def counted(_: StderrDrain) -> int:
            reads.append(read())
            return reads[-1]

        monkeypatch.setattr(StderrDrain, "_read", counted)
        argv = [sys.executable, "-c", FLOODS.format(count=200)]
        flood = await asyncio.create_subprocess_exec(*argv, stderr=write_end, stdout=subprocess.PIPE)
        os.close(write_end)
        assert flood.stdout is not None
        assert await flood.stdout.readline() == b"done\n"
        await flood.wait()
        await until(lambda: drain._fd < 0)
        assert sum(reads) == 200 * 65536

    run(main())
    full = sum(size == stderr.READ_BYTES for size in reads)
    assert full > 0 and len(rests) <= full // reads_per_rest
    assert len(rests) == full or reads_per_rest > 1
    assert rests == [pytest.approx(stderr.REST_FACTOR * reads_per_rest * seconds)] * len(rests)


class Recording:
    """A loop that notes each rest and does not wait for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rests: list[float]) -> None:
        self._loop = loop
        self._rests = rests
        self.add_reader, self.remove_reader = loop.add_reader, loop.remove_reader

    def call_later(self, delay: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        self._rests.append(delay)
        return self._loop.call_later(0, callback)


def test_the_loop_reads_without_being_asked(run: Run) -> None:
    async def scenario(drain: StderrDrain, fd: int) -> None:
        os.write(fd, b"hello\n")
        await until(lambda: drain.tail() == ["hello"])

    drained(run, scenario)


def test_the_end_of_the_pipe_closes_the_drain_and_keeps_the_tail(run: Run) -> None:
    async def main() -> None:
        before = open_fds()
        read_end, write_end = os.pipe()
        drain = StderrDrain(asyncio.get_running_loop(), read_end)
        os.write(write_end, b"last words")
        os.close(write_end)
        await until(lambda: open_fds() <= before)
        assert drain.tail() == ["last words"]
        drain.drain_now()

    run(main())


def test_the_tail_has_as_many_lines_as_asked_for(run: Run) -> None:
    drain = drained(run, writing(b"".join(b"%d\n" % number for number in range(50))))
    assert drain.tail(3) == ["47", "48", "49"]
    assert len(drain.tail()) == 20
    assert drain.tail(0) == []
    assert len(drain.tail(500)) == 50


def test_the_tail_has_only_lines_from_a_time_on(run: Run) -> None:
    times: list[float] = []

    async def scenario(drain: StderrDrain, fd: int) -> None:
        for piece in (b"a\nb\n", b"", b"c\nd", b"\ne\n"):
            times.append(time.monotonic())
            if piece:
                os.write(fd, piece)
            drain.drain_now()

    drain = drained(run, scenario)
    assert drain.tail(since=times[0]) == ["a", "b", "c", "d", "e"]
    assert drain.tail(since=times[1]) == drain.tail(since=times[2]) == ["c", "d", "e"]
    assert drain.tail(since=times[3]) == ["d", "e"], "its end arrived then"
    assert drain.tail(1, since=times[2]) == ["e"]
    assert drain.tail(since=time.monotonic()) == []


def test_the_tail_from_a_time_on_is_right_after_the_ring_has_lost_lines(run: Run) -> None:
    began: list[float] = []

    async def scenario(drain: StderrDrain, fd: int) -> None:
        for number in range(3 * stderr.RING_LINES):
            if number == 3 * stderr.RING_LINES - 2:
                began.append(time.monotonic())
            os.write(fd, b"%d\n" % number)
            drain.drain_now()

    drain = drained(run, scenario)
    assert drain.tail(since=began[0]) == [str(3 * stderr.RING_LINES - 2), str(3 * stderr.RING_LINES - 1)]
    assert len(drain.tail(1000, since=0.0)) == stderr.RING_LINES


@pytest.mark.parametrize("split", [1, 100, 5000, 8192, 8193, 20000])
def test_a_long_line_is_cut_and_marked(run: Run, split: int) -> None:
    line = b"x" * 20000
    drain = drained(run, writing(line[:split], line[split:] + b"\nnext\n"))
    assert drain.tail() == ["x" * 8192 + CUT, "next"]


def test_a_line_of_exactly_the_cap_is_whole(run: Run) -> None:
    drain = drained(run, writing(b"x" * 8192 + b"\n", b"y" * 8192, b"\n"))
    assert drain.tail() == ["x" * 8192, "y" * 8192]


def test_a_line_that_never_ends_costs_no_more_than_the_cap(run: Run) -> None:
    drain = drained(run, writing(*[b"x" * 32768] * 64))
    assert drain.tail() == ["x" * 8192 + CUT]


def test_the_ring_is_bounded_by_lines(run: Run) -> None:
    drain = drained(run, writing(*[b"%d\n" % number for number in range(1000)]))
    assert drain.tail(10_000) == [str(number) for number in range(800, 1000)]


def test_the_ring_is_bounded_by_bytes(run: Run) -> None:
    drain = drained(run, writing(*[b"x" * 8000 + b"\n" for _ in range(100)]))
    kept = drain.tail(10_000)
    assert 0 < sum(map(len, kept)) <= stderr.RING_BYTES
    assert len(kept) == stderr.RING_BYTES // 8000


def test_a_drain_ends_even_if_something_keeps_writing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []

    def endless(fd: int, size: int) -> bytes:
        reads.append(size)
        return b"x" * size

    async def scenario(drain: StderrDrain, fd: int) -> None:
        monkeypatch.setattr(os, "read", endless)
        drain.drain_now()
        monkeypatch.undo()

    drained(run, scenario)
    assert sum(reads) == stderr.FINAL_BYTES


# The log.


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def texts(path: Path) -> list[str]:
    """The lines of a log without their time stamps."""
    return [line.partition(" ")[2] for line in path.read_text().splitlines()]


def test_lines_reach_the_log_with_time_and_origin(run: Run, tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "p.log")
    drained(run, writing(b"one\n\x1b[2Jtwo\n", b"unfinished"), log)
    assert texts(log.path) == ["[7] one", "[7] \\x1b[2Jtwo", "[7] unfinished"]
    assert log.path.read_text()[:2] == "20"
    assert log.path.stat().st_mode & 0o077 == 0


def test_a_line_is_made_fit_to_be_kept_before_it_is_kept_anywhere(run: Run, tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "p.log")

    async def scenario(drain: StderrDrain, fd: int) -> None:
        drain.clean = lambda lines: [line.replace(b"secret", b"***") for line in lines]
        await writing(b"a sec", b"ret\nb\n", b"last secret")(drain, fd)

    drain = drained(run, scenario, log)
    assert drain.tail() == ["a ***", "b", "last ***"]
    assert log.path.read_text().count("***") == 2 and "secret" not in log.path.read_text()


def test_two_children_share_one_log(run: Run, tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "p.log")
    drained(run, writing(b"first\n"), log)
    drained(run, writing(b"second\n"), log)
    assert texts(log.path) == ["[7] first", "[7] second"]


def test_a_flood_is_dropped_and_counted(tmp_path: Path) -> None:
    clock = Clock()
    log = RotatingLog(tmp_path / "p.log", clock=clock)
    for _ in range(64):
        log.write([b"x" * 1000] * 64)
    written = log.path.stat().st_size
    assert stderr.LOG_BURST - 2000 < written <= stderr.LOG_BURST
    assert log.dropped == 64 * 64 - len(texts(log.path))

    clock.now += 1
    before = len(texts(log.path))
    log.write([b"calm"])
    marker, *held, last = texts(log.path)[before:]
    assert marker == f"[plugbay] {log.dropped} lines dropped: too many, or the log could not be written"
    assert last == "calm" and set(held) == {"x" * 1000}
    assert log.dropped == 64 * 64 - before - len(held)
    assert sum(map(len, held)) <= stderr.LOG_RESUME < sum(map(len, held)) + 2000
    log.conclude()
    assert texts(log.path)[-1] == "calm"


def test_the_newest_lines_of_a_flood_are_held_until_there_is_room(tmp_path: Path) -> None:
    clock = Clock()
    log = RotatingLog(tmp_path / "p.log", clock=clock)
    numbers = iter(range(1_000_000))
    while not log.is_behind:
        log.write([b"line %d" % next(numbers) for _ in range(1000)])
    for _ in range(10):
        log.write([b"line %d" % next(numbers) for _ in range(1000)])
    assert not log.catch_up(), "there is no room yet"
    clock.now += stderr.LOG_RESUME / stderr.LOG_RATE
    assert log.catch_up() and log.catch_up() and not log.is_behind
    end = next(numbers)
    assert texts(log.path)[-stderr.HELD_LINES :] == [f"line {at}" for at in range(end - stderr.HELD_LINES, end)]
    assert texts(log.path)[-stderr.HELD_LINES - 1].startswith(f"[plugbay] {log.dropped} lines dropped")
    assert log.dropped == end - sum(text.startswith("line") for text in texts(log.path))


def test_held_lines_stay_in_order_for_readers_that_sort_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RotatingLog(tmp_path / "p.log", clock=Clock())
    for second, lines in enumerate(([b"x" * 8000] * 200, [b"the last words"])):
        monkeypatch.setattr(stderr, "_stamp", lambda second=second: f"2026-01-01T00:00:0{second}Z")
        log.write(lines)
    monkeypatch.setattr(stderr, "_stamp", lambda: "2026-01-01T00:00:09Z")
    log.conclude()
    written = log.path.read_text().splitlines()
    assert sorted(written, key=lambda line: line.partition(" ")[0]) == written
    assert written[-1].endswith("the last words") and "lines dropped" in log.path.read_text()


def test_the_end_of_a_flood_is_written_while_the_child_is_silent(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stderr, "LOG_BURST", 1000)
    monkeypatch.setattr(stderr, "LOG_RESUME", 500)
    monkeypatch.setattr(stderr, "HELD_SECONDS", 0.01)
    log = RotatingLog(tmp_path / "p.log")
    log.path.touch()

    async def scenario(drain: StderrDrain, fd: int) -> None:
        os.write(fd, b"a line of a flood\n" * 1000 + b"the last words\n")
        await until(lambda: texts(log.path)[-1:] == ["[7] the last words"])
        assert not log.is_behind and drain._late is None

    drained(run, scenario, log)


def test_a_steady_flood_grows_the_log_at_the_rate(tmp_path: Path) -> None:
    clock = Clock()
    log = RotatingLog(tmp_path / "p.log", clock=clock)
    for _ in range(100):
        clock.now += 0.1
        log.write([b"x" * 100] * 2000)
    seconds = 10
    assert log.path.stat().st_size <= stderr.LOG_BURST + seconds * stderr.LOG_RATE + 100 * 100


def test_a_flood_that_ends_with_the_child_is_noted(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "p.log", clock=Clock())
    log.write([b"x" * 8000] * 200 + [b"the last words"])
    assert log.dropped > 0
    log.conclude()
    *_, marker, _, _, last = texts(log.path)
    assert marker.startswith(f"[plugbay] {log.dropped} lines dropped") and last == "the last words"


def test_a_full_log_is_rotated_and_old_ones_go(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "p.log", max_bytes=1000, keep=3)
    for number in range(60):
        log.write([b"line %03d %s" % (number, b"x" * 60)])
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["p.log", "p.log.1", "p.log.2", "p.log.3"]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    kept = [text.split()[1] for name in reversed(names) for text in texts(tmp_path / name)]
    assert kept == [f"{number:03d}" for number in range(60 - len(kept), 60)]
    assert log.dropped == 0


def test_a_log_that_keeps_nothing_old_starts_over(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "p.log", max_bytes=200, keep=0)
    for _ in range(20):
        log.write([b"x" * 50])
    assert [path.name for path in tmp_path.iterdir()] == ["p.log"]
    assert log.path.stat().st_size <= 200


def test_a_full_disk_never_raises(run: Run) -> None:
    log = RotatingLog(Path("/dev/full"))
    drain = drained(run, writing(b"one\ntwo\n"), log)
    assert log.dropped == 2
    assert drain.tail() == ["one", "two"]
    assert Path("/dev/full").is_char_device()


def test_a_missing_directory_never_raises_and_may_appear_later(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "absent" / "p.log")
    log.write([b"one", b"two"])
    assert log.dropped == 2
    (tmp_path / "absent").mkdir()
    log.write([b"three"])
    assert texts(log.path) == ["one", "two", "three"] and log.dropped == 0


def test_a_pipe_in_place_of_the_log_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.log")
    log = RotatingLog(tmp_path / "p.log")
    log.write([b"one"])
    assert log.dropped == 1


def test_a_link_in_place_of_the_log_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("untouched")
    (tmp_path / "p.log").symlink_to(tmp_path / "precious")
    log = RotatingLog(tmp_path / "p.log")
    log.write([b"one"])
    assert log.dropped == 1
    assert (tmp_path / "precious").read_text() == "untouched"


def test_a_failed_rotation_drops_instead_of_growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: object, target: object) -> None:
        raise PermissionError

    log = RotatingLog(tmp_path / "p.log", max_bytes=200)
    monkeypatch.setattr(os, "replace", refuse)
    for _ in range(20):
        log.write([b"x" * 50])
    assert log.path.stat().st_size <= 200
    assert log.dropped > 0


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("weather", "weather.log"),
        ("com.example/weather", "com.example%2Fweather.log"),
        ("..", "%2E..log"),
        ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd.log"),
        (".hidden", "%2Ehidden.log"),
        ("a b%", "a%20b%25.log"),
        ("", "%.log"),
        ("x\0y", "x%00y.log"),
    ],
)
def test_a_log_name_is_safe(label: str, name: str) -> None:
    assert log_name(label) == name


def test_long_ids_keep_apart_and_short_enough() -> None:
    names = {log_name("ü" * 100 + tail) for tail in ("a", "b", "ab")} | {log_name("ü" * 101)}
    assert len(names) == 4
    assert all(len(name) <= 210 for name in names)
