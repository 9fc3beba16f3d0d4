"""`--jobs N` runs the tests in N processes, forked once everything is collected.

Collecting takes 20 s of a core. Here it is done once for all processes, which costs a third less than processes that
collect for themselves. A process runs the tests of one file together, so that they share what the file sets up. One
that dies fails the test that it ran, and another takes its place.

Tests marked `alone` come first, one after the other: they sweep up after dead hosts, so no other host may start beside
them.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from signal import SIGKILL
from types import SimpleNamespace
from typing import Any

import pytest

TOGETHER = 96
"""Tests of one file that one process runs together, at most."""

QUICK = ("tests/contracts/", "tests/model/", "tests/wire/")
"""Run last: where every test is short, all processes end at nearly the same time."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--jobs", type=int, default=0, metavar="N", help="run the tests in N processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    jobs, collected = session.config.getoption("jobs"), not session.config.getoption("collectonly")
    if jobs < 2 or not collected or session.testsfailed:
        return None
    pool = Pool(session)
    try:
        pool.run(batches(session.items, alone=True), 1)
        pool.run(batches(session.items, alone=False), jobs)
    finally:
        pool.end()
    return True


class Worker:
    """One process, as the process that collected sees it."""

    def __init__(self, number: int, pid: int) -> None:
        self.node = SimpleNamespace(gateway=SimpleNamespace(id=f"job {number}"))
        self.number = number
        self.pid = pid
        self.left: deque[int] = deque()
        """The tests that it was given and has not run to their end."""


class Pool:
    """All processes of a session."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._batches: deque[list[int]] = deque()
        self._workers: dict[Connection, Worker] = {}

    def run(self, batches: Iterable[list[int]], jobs: int) -> None:
        self._batches.extend(batches)
        for number in range(min(jobs, len(self._batches))):
            self._start(number)
        while self._workers:
            for connection in wait(list(self._workers)):
                assert isinstance(connection, Connection)
                try:
                    self._hear(connection, self._workers[connection], connection.recv())
                except EOFError:
                    self._ended(connection)
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)

    def end(self) -> None:
        for worker in self._workers.values():
            os.kill(worker.pid, SIGKILL)
            os.waitpid(worker.pid, 0)

    def _start(self, number: int) -> None:
        ours, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for connection in (ours, *self._workers):
                connection.close()
            _work(self._session, theirs)
        theirs.close()
        self._workers[ours] = Worker(number, pid)

    def _hear(self, connection: Connection, worker: Worker, message: tuple[int, Any] | None) -> None:
        if message is None:
            batch = self._batches.popleft() if self._batches else []
            worker.left.extend(batch)
            connection.send(batch)
            return
        index, result = message
        worker.left.remove(index)
        for report in [self._passed(index, result)] if isinstance(result, float) else map(self._loaded, result):
            self._tell(worker, report)

    def _ended(self, connection: Connection) -> None:
        worker = self._workers.pop(connection)
        connection.close()
        _, status = os.waitpid(worker.pid, 0)
        if worker.left:
            index = worker.left.popleft()
            text = f"the process that ran this test ended with {os.waitstatus_to_exitcode(status)}"
            self._tell(worker, self._report(index, "failed", 0.0, text))
            self._batches.appendleft(list(worker.left))
            self._start(worker.number)

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


def batches(items: list[pytest.Item], alone: bool) -> Iterator[list[int]]:
    """The tests by their numbers, those of a file together."""
    chosen = [index for index, item in enumerate(items) if bool(item.get_closest_marker("alone")) is alone]
    order = sorted(chosen, key=lambda index: items[index].nodeid.startswith(QUICK))
    for _, group in groupby(order, lambda index: items[index].path):
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
