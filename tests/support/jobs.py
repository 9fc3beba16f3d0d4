"""`--jobs N` runs the tests in N processes, forked once everything is collected.

Collecting takes 20 s of a core. Here it is done once for all processes, which costs a third less than processes that
collect for themselves. A process runs the tests of one file together, so that they share what the file sets up. One
that dies fails the test that it ran, and another takes its place.

Tests marked `alone` come first, one after the other, in a process of their own: they sweep up after dead hosts, so no
other host may start beside them. They wait most of the time, so others run tests meanwhile that start no host.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections import deque
from collections.abc import Iterator
from enum import Enum
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from signal import SIGKILL
from types import SimpleNamespace
from typing import Any

import pytest

TOGETHER = 96
"""Tests of one file that one process runs together, at most."""

LONG = ("tests/faults/", "tests/soak/")
"""These take minutes and wait most of the time, so they come first; otherwise they would end long after the others."""

QUICK = ("tests/contracts/", "tests/model/", "tests/wire/")
"""These start no host, so they run beside those that are alone. The rest of them is run last: where every test is
short, all processes end at nearly the same time."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--jobs", type=int, default=0, metavar="N", help="run the tests in N processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    jobs, collected = session.config.getoption("jobs"), not session.config.getoption("collectonly")
    if jobs < 2 or not collected or session.testsfailed:
        return None
    pool = Pool(session)
    try:
        pool.run(jobs)
    finally:
        pool.end()
    return True


ENDED = "ended"
"""In place of a message: the process has ended."""


class Worker:
    """One process, as the process that collected sees it."""

    def __init__(self, number: int, pid: int, *, alone: bool) -> None:
        self.node = SimpleNamespace(gateway=SimpleNamespace(id=f"job {number}"))
        self.number = number
        self.pid = pid
        self.alone = alone
        """Whether it runs the tests that are alone, and no others."""
        self.left: deque[int] = deque()
        """The tests that it was given and has not run to their end."""


class Pool:
    """All processes of a session."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._alone = deque(batches(session.items, Kind.ALONE))
        self._usual = deque((*batches(session.items, Kind.LONG), *batches(session.items, Kind.USUAL)))
        self._quick = deque(batches(session.items, Kind.QUICK))
        self._workers: dict[Connection, Worker] = {}
        self._waiting: list[Connection] = []
        """Of processes that get more when the tests that are alone have ended."""

    def run(self, jobs: int) -> None:
        count = len(self._alone) + len(self._usual) + len(self._quick)
        for number in range(min(jobs, count)):
            self._start(number, alone=number == 0 and bool(self._alone))
        while self._workers:
            for connection in wait(list(self._workers)):
                assert isinstance(connection, Connection)
                try:
                    message = connection.recv()
                except EOFError:
                    message = ENDED
                # Not where the exception is handled: a process that is forked there has it as the context of its own.
                if message == ENDED:
                    self._ended(connection)
                else:
                    self._hear(connection, self._workers[connection], message)
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)

    def end(self) -> None:
        for worker in self._workers.values():
            os.kill(worker.pid, SIGKILL)
            os.waitpid(worker.pid, 0)

    def _start(self, number: int, *, alone: bool) -> None:
        ours, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for connection in (ours, *self._workers):
                connection.close()
            _work(self._session, theirs)
        theirs.close()
        self._workers[ours] = Worker(number, pid, alone=alone)

    def _hear(self, connection: Connection, worker: Worker, message: tuple[int, Any] | None) -> None:
        if message is None:
            self._give(connection, worker)
            return
        index, result = message
        worker.left.remove(index)
        for report in [self._passed(index, result)] if isinstance(result, float) else map(self._loaded, result):
            self._tell(worker, report)

    def _give(self, connection: Connection, worker: Worker) -> None:
        """The next tests of a process; none end it."""
        beside = any(other.alone for other in self._workers.values())
        queue = self._alone if worker.alone else self._quick if beside or not self._usual else self._usual
        if beside and not worker.alone and not queue:
            self._waiting.append(connection)
            return
        batch = queue.popleft() if queue else []
        worker.left.extend(batch)
        connection.send(batch)

    def _ended(self, connection: Connection) -> None:
        worker = self._workers.pop(connection)
        connection.close()
        _, status = os.waitpid(worker.pid, 0)
        if worker.left:
            index = worker.left.popleft()
            text = f"the process that ran this test ended with {os.waitstatus_to_exitcode(status)}"
            self._tell(worker, self._report(index, "failed", 0.0, text))
            (self._alone if worker.alone else self._usual).appendleft(list(worker.left))
            self._start(worker.number, alone=worker.alone)
        elif worker.alone:
            self._start(worker.number, alone=False)
            for waiting in self._waiting:
                self._give(waiting, self._workers[waiting])

    def _tell(self, worker: Worker, report: Any) -> None:
        report.node = worker.node  # by this the terminal knows that tests of several files come mixed
        self._session.config.hook.pytest_runtest_logreport(report=report)
        del report.node

    def _passed(self, index: int, seconds: float) -> pytest.TestReport:
        return self._report(index, "passed", seconds)

    def _report(self, index: int, outcome: Any, seconds: float, text: str | None = None) -> pytest.TestReport:
        item = self._session.items[index]
        return pytest.TestReport(item.nodeid, item.location, {}, outcome, text, "call", duration=seconds)

    def _loaded(self, data: dict[str, Any]) -> pytest.TestReport:
        config = self._session.config
        report = config.hook.pytest_report_from_serializable(config=config, data=data)
        assert isinstance(report, pytest.TestReport)
        return report


class Kind(Enum):
    """When tests are run."""

    ALONE, LONG, USUAL, QUICK = range(4)

    @classmethod
    def of(cls, item: pytest.Item) -> Kind:
        if item.get_closest_marker("alone"):
            return cls.ALONE
        if item.nodeid.startswith(LONG):
            return cls.LONG
        return cls.QUICK if item.nodeid.startswith(QUICK) else cls.USUAL


def batches(items: list[pytest.Item], kind: Kind) -> Iterator[list[int]]:
    """The tests of a kind by their numbers, those of a file together."""
    chosen = [index for index, item in enumerate(items) if Kind.of(item) is kind]
    for _, group in groupby(chosen, lambda index: items[index].path):
        indices = list(group)
        for start in range(0, len(indices), TOGETHER):
            yield indices[start : start + TOGETHER]


def _work(session: pytest.Session, connection: Connection) -> None:
    """Run what comes, in a process that ends here."""
    status = 1
    try:
        plugins = session.config.pluginmanager
        plugins.unregister(name="terminalreporter")
        # Its files are those of all processes until then.
        capture: Any = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        _run_all(session, connection)
        status = 0
    except (EOFError, BrokenPipeError, KeyboardInterrupt):  # the session is over
        pass
    finally:
        atexit._run_exitfuncs()
        os._exit(status)


class Reports:
    """A plugin that keeps the reports of the test that runs."""

    def __init__(self) -> None:
        self._reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    def taken(self, config: pytest.Config) -> float | list[dict[str, Any]]:
        """How long a test took that passed; otherwise all its reports."""
        reports, self._reports = self._reports, []
        if all(report.passed for report in reports):
            return next(report.duration for report in reports if report.when == "call")
        return [config.hook.pytest_report_to_serializable(config=config, report=report) for report in reports]


def _run_all(session: pytest.Session, connection: Connection) -> None:
    reports = Reports()
    session.config.pluginmanager.register(reports)
    left = deque(_asked_for_more(connection))
    while left:
        index = left.popleft()
        if not left:
            left.extend(_asked_for_more(connection))
        following = session.items[left[0]] if left else None
        session.config.hook.pytest_runtest_protocol(item=session.items[index], nextitem=following)
        connection.send((index, reports.taken(session.config)))


def _asked_for_more(connection: Connection) -> list[int]:
    connection.send(None)
    batch: list[int] = connection.recv()
    return batch
