"""The fixtures in a project that installed plugbay: runs pytest in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture import SOURCE
from tests.support.patience import PATIENCE
from tests.support.tiers import exhaustive

ROOT = SOURCE.parents[1]

TESTS = """
import pytest
from plugbay.testing import faults

def test_a_fake_plugin_is_hosted(plugbay_host, fake_plugin):
    plugin = fake_plugin({"look": {"seen": "tea"}}, contract="kaged")
    host = plugbay_host(plugin.path)
    assert host.call("look") == {"seen": "tea"}
    assert len(plugin.calls) == 1

def test_settings_and_options_reach_the_host(plugbay_host, fake_plugin):
    plugin = fake_plugin({"look": 1}, contract="kaged")
    host = plugbay_host(plugin.path, toml='[plugins.fake]\\nenabled = false\\n', eager=False)
    with pytest.raises(Exception, match="disabled"):
        host.call("look")

def test_bad_plugins_are_there(plugbay_host, bad_plugin):
    bad = bad_plugin("rune/good")
    assert bad.expect == "succeeded"
    plugbay_host(bad.path).call(bad.tool, bad.input)
"""

ASYNC_TESTS = """
import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
async def test_a_host_beside_a_loop(plugbay_host, fake_plugin):
    plugin = fake_plugin({"look": 1}, contract="kaged")
    assert await plugbay_host(plugin.path).host.call("look") == 1
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site-packages folder with plugbay, as a wheel installs it, with its RECORD."""
    site = tmp_path / "site"
    info = site / "plugbay-0.1.0.dist-info"
    info.mkdir(parents=True)
    (site / "plugbay").symlink_to(SOURCE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugbay\nVersion: 0.1.0\n")
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]["pytest11"]
    (info / "entry_points.txt").write_text("[pytest11]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items()))
    files = sorted(path.relative_to(SOURCE.parent) for path in SOURCE.rglob("*.py"))
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in files))
    return site


QUIET = ["-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", "-W", "error"]
"""Disable plugins that only we have installed: schemathesis takes a second to load in each process."""


def run_pytest(site: Path, folder: Path, text: str, *words: str) -> str:
    (folder / "test_it.py").write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *QUIET, *words, "test_it.py"],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.stdout + done.stderr


def test_the_fixtures_are_available_where_plugbay_is_installed(site: Path, tmp_path: Path) -> None:
    assert "3 passed" in run_pytest(site, tmp_path, TESTS)


@exhaustive
def test_they_work_on_several_processes(site: Path, tmp_path: Path) -> None:
    assert "3 passed" in run_pytest(site, tmp_path, TESTS, "-n", "2")


@exhaustive
def test_they_work_beside_the_loop_of_an_async_test(site: Path, tmp_path: Path) -> None:
    assert "1 passed" in run_pytest(site, tmp_path, ASYNC_TESTS)


def test_a_project_without_the_fixtures_loads_three_small_modules(site: Path, tmp_path: Path) -> None:
    text = """
import sys

def test_what_is_loaded():
    loaded = {name for name in sys.modules if name.split(".")[0] in ("plugbay", "msgspec", "pydantic", "typer")}
    assert loaded == {"plugbay", "plugbay.testing", "plugbay.testing.pytest_plugin"}
"""
    assert "1 passed" in run_pytest(site, tmp_path, text)


@exhaustive
def test_they_can_be_turned_off(site: Path, tmp_path: Path) -> None:
    assert "fixture 'plugbay_host' not found" in run_pytest(site, tmp_path, TESTS, "-p", "no:plugbay")
