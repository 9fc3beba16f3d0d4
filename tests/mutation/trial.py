"""Runs the mirrored tests of a module against each of its mutants, each in a forked process.

Libraries are loaded once, before the fork; plugbay and its tests are loaded after it, so that a mutant replaces the
module for all that import it. Nothing is written to disk.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pickle
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tests.mutation.mutants import mutants

ROOT = Path(__file__).parents[2]
OURS = ("plugbay", "tests", "examples", "scripts", "bench")
SECONDS = 120.0
"""After which a mutant counts as caught: it made a test hang."""


class Result(NamedTuple):
    """The fate of one mutant."""

    name: str
    survived: bool
    hung: bool = False


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Has one module be loaded from another tree."""

    def __init__(self, module: str, path: Path, tree: ast.Module) -> None:
        self._module = module
        self._path = path
        self._tree = tree

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._module:
            return None
        return importlib.util.spec_from_loader(name, self, origin=str(self._path))

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self._path)
        exec(compile(self._tree, str(self._path), "exec"), vars(module))


def source_of(module: str) -> Path:
    return ROOT / "src" / f"{module.replace('.', '/')}.py"


def mirror_of(module: str) -> Path:
    """The file that mirrors a module."""
    path = Path(*module.split(".")[1:])
    return ROOT / "tests" / path.with_name(f"test_{path.name}.py")


def try_module(module: str, jobs: int) -> list[Result]:
    """The fate of each mutant of a module; raises AssertionError if the tests fail without one."""
    source = source_of(module).read_text("utf-8")
    tests = mirror_of(module)
    _load(_libraries(tests))
    (whole,) = _results([("none", ast.parse(source))], module, jobs)
    assert whole.survived, f"the tests of {module} fail without a mutant"
    return list(_results([(each.name, each.tree(source)) for each in mutants(source)], module, jobs))


def _results(trees: list[tuple[str, ast.Module]], module: str, jobs: int) -> Iterator[Result]:
    """Try each tree in a process of its own. No thread is here: a forked process would miss the others' locks."""
    running: dict[int, tuple[str, float]] = {}
    while trees or running:
        while trees and len(running) < jobs:
            name, tree = trees.pop()
            running[_start(module, tree)] = (name, time.monotonic() + SECONDS)
        for pid, (name, deadline) in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            hung = not ended and time.monotonic() > deadline
            if hung:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            if ended or hung:
                del running[pid]
                yield Result(name, bool(ended) and os.waitstatus_to_exitcode(status) == 0, hung)
        time.sleep(0.02)


def _start(module: str, tree: ast.Module) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        sys.meta_path.insert(0, Mutated(module, source_of(module), tree))
        code = _run_tests(mirror_of(module))
    finally:
        os._exit(code)


def _libraries(tests: Path) -> list[str]:
    """The modules that the tests load and that are not ours."""
    with tempfile.TemporaryFile() as file:
        pid = os.fork()
        if pid == 0:
            _run_tests(tests)
            file.write(pickle.dumps([name for name in sys.modules if not name.startswith(OURS)]))
            file.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        file.seek(0)
        names: list[str] = pickle.loads(file.read())
        return names


def _load(names: list[str]) -> None:
    for name in names:
        if not name.startswith(("_pytest", "pytest", "__main__", "conftest")):
            try:
                importlib.import_module(name)
            except Exception:  # a module that another one made
                continue


def _run_tests(tests: Path) -> int:
    import pytest

    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    os.environ["HYPOTHESIS_PROFILE"] = "mutation"
    options = ["-q", "-x", "--assert=plain", "-p", "no:cacheprovider", "--rootdir", str(ROOT), "-m", "not alone"]
    return int(pytest.main([*options, str(tests)]))
