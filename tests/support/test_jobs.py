"""Tests in several processes: each is run once and reported as it ended, also where its process does not survive it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE
from tests.support.tiers import first_alone

BARE = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""To load the plugins of other packages takes longer than the tests."""

TESTS = """
import os
import pytest

@pytest.fixture(scope="module")
def shared():
    yield
    raise RuntimeError("at the end of the file")

@pytest.mark.parametrize("number", range(100))
def test_good(number, tmp_path):
    tmp_path.joinpath("own").touch(exist_ok=False)

def test_bad():
    print("said by a test")
    assert [1] == [2]

def test_fatal():
    os._exit(3)

def test_after():
    pytest.skip("not today")

def test_last(shared):
    pass
"""


def run_tests(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder in a pytest of their own."""
    plugins = ["-p", "tests.support.jobs", "-p", "no:cacheprovider"]
    words = [sys.executable, "-m", "pytest", *plugins, "--rootdir", str(folder), *options, str(folder)]
    return subprocess.run(words, env=BARE, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize("jobs", first_alone([3, 0]))
def test_every_test_is_run_once_and_reported(tmp_path: Path, jobs: int) -> None:
    for name in ("test_a.py", "test_b.py"):
        text = TESTS if jobs else TESTS.replace("os._exit(3)", "assert False")
        (tmp_path / name).write_text(text)
    done = run_tests(tmp_path, "-ra", "--jobs", str(jobs))
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"4 failed, 202 passed, 2 skipped, 2 errors in", done.stdout), done.stdout
    assert "said by a test" in done.stdout and "assert [1] == [2]" in done.stdout and "not today" in done.stdout
    # The lines of pytest's summary have the same text where CI is set, behind the name of the test.
    crashes = re.findall(r"^the process that ran this test ended with 3$", done.stdout, re.MULTILINE)
    assert len(crashes) == (2 if jobs else 0), done.stdout


def test_the_first_failure_ends_all_where_that_is_wanted(tmp_path: Path) -> None:
    many = "import pytest\n@pytest.mark.parametrize('n', range(500))\ndef test(n):\n    assert n"
    (tmp_path / "test_a.py").write_text(many)
    done = run_tests(tmp_path, "--jobs", "2", "-x")
    assert done.returncode == 1 and "stopping after 1 failures" in done.stdout, done.stdout + done.stderr


APART = """
import pytest
from pathlib import Path

BEGUN = Path(__file__).with_name("begun")

@pytest.mark.alone
@pytest.mark.parametrize("number", range(5))
def test_alone(number):
    assert not BEGUN.exists()

@pytest.mark.parametrize("number", range(100))
def test_others(number):
    BEGUN.touch()
    with pytest.raises(KeyError) as caught:
        {}["none"]
    assert caught.value.__context__ is None
"""


BESIDE = """
import pytest
from pathlib import Path

QUICK = Path(__file__).parents[2] / "quick"

@pytest.mark.parametrize("number", range(100))
def test_quick(number):
    QUICK.touch()
"""

WAITS = """
import time
import pytest
from pathlib import Path

@pytest.mark.alone
def test_alone():
    while not Path(__file__).with_name("quick").exists():
        time.sleep(0.01)
"""


@pytest.mark.parametrize("jobs", ["2", "3"])
def test_tests_that_are_alone_come_before_all_others(tmp_path: Path, jobs: str) -> None:
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(APART)
    done = run_tests(tmp_path, "--jobs", jobs)
    assert done.returncode == 0 and "210 passed" in done.stdout, done.stdout + done.stderr


def test_tests_that_start_no_host_run_beside_those_that_are_alone(tmp_path: Path) -> None:
    (tmp_path / "tests" / "wire").mkdir(parents=True)
    (tmp_path / "tests" / "wire" / "test_quick.py").write_text(BESIDE)
    (tmp_path / "test_a.py").write_text(APART)
    (tmp_path / "test_b.py").write_text(WAITS)
    done = run_tests(tmp_path, "--jobs", "2")
    assert done.returncode == 0 and "206 passed" in done.stdout, done.stdout + done.stderr


def test_long_tests_come_first(tmp_path: Path) -> None:
    (tmp_path / "tests" / "soak").mkdir(parents=True)
    (tmp_path / "tests" / "soak" / "test_long.py").write_text(BESIDE)
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(WAITS.replace("@pytest.mark.alone", ""))
    done = run_tests(tmp_path, "--jobs", "2")
    assert done.returncode == 0 and "102 passed" in done.stdout, done.stdout + done.stderr


def test_a_process_that_dies_in_a_test_that_is_alone_is_replaced_by_another(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(APART.replace("assert not BEGUN.exists()", "assert number != 2 or os._exit(3)"))
    (tmp_path / "test_a.py").write_text("import os\n" + (tmp_path / "test_a.py").read_text())
    done = run_tests(tmp_path, "--jobs", "2")
    assert "1 failed, 104 passed" in done.stdout, done.stdout + done.stderr
