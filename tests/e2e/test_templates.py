"""From `plugbay new` to a plugin that conforms and passes its own tests, untouched, for every template."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

import plugbay as package
from plugbay.cli.new import CONTRACTS, LANGUAGES
from tests.support.commands import plugbay
from tests.support.patience import PATIENCE
from tests.support.tiers import exhaustive, first_alone

OWN_TESTS = {
    "python": [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"],
    "javascript": ["node", "--test", "test.mjs"],
    "shell": ["sh", "test.sh"],
}
"""What the README of each says. Its reader has no schemathesis, which takes pytest a second to load."""


class Desk:
    """An empty folder, and an environment in which `plugbay` is a command."""

    def __init__(self, place: Path) -> None:
        self.folder = place / "work"
        self.folder.mkdir()
        (place / "bin").mkdir()
        tool = place / "bin" / "plugbay"
        tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m plugbay "$@"\n')
        tool.chmod(0o755)
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        path = os.pathsep.join([str(tool.parent), os.path.dirname(sys.executable), os.environ["PATH"]])
        source = str(Path(package.__file__).parents[1])
        self.env = {**kept, "PATH": path, "HOME": str(place), "LC_ALL": "C.UTF-8", "PYTHONPATH": source}

    def plugbay(self, *words: str, cwd: str = ".") -> subprocess.CompletedProcess[bytes]:
        return plugbay(*words, cwd=self.folder / cwd, env=self.env, timeout=PATIENCE)

    def run(self, *words: str, cwd: str = ".") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.folder / cwd,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
            check=False,
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize("template", first_alone(product(LANGUAGES, CONTRACTS)), ids="-".join)
def test_a_new_plugin_keeps_its_contract_and_passes_its_own_tests(desk: Desk, template: tuple[str, str]) -> None:
    language, contract = template
    made = desk.plugbay("new", "sky-map", "--lang", language, "--contract", contract)
    assert made.returncode == 0, made.stderr
    held = desk.plugbay("conform", ".", "--json", cwd="sky-map")
    report = json.loads(held.stdout)
    assert [axis for axis in report["axes"] if axis["status"] == "failed"] == []
    assert (held.returncode, report["contract"]) == (0, contract)
    assert report["passed"] >= 9
    own = f"{contract}.manifest.drift" in {axis["id"] for axis in report["axes"]}
    assert own == (language == "python")
    done = desk.run(*OWN_TESTS[language], cwd="sky-map")
    assert done.returncode == 0, done.stdout + done.stderr


@exhaustive
def test_one_source_for_all_contracts_keeps_them_and_passes_its_tests(desk: Desk) -> None:
    desk.plugbay("new", "sky-map", "--contract", "all")
    done = desk.run(*OWN_TESTS["python"], cwd="sky-map")
    assert done.returncode == 0, done.stdout + done.stderr
    only = ["--only", "rune.handshake.answers", "--only", "nexo.initialize.answers", "--only", "rune.manifest.drift"]
    held = desk.plugbay("conform", ".", *only, "--json", cwd="sky-map")
    assert held.returncode == 0, held.stdout + held.stderr
    assert [axis["status"] for axis in json.loads(held.stdout)["axes"]] == ["passed"] * 3


@exhaustive
@pytest.mark.parametrize("language", first_alone(LANGUAGES))
def test_a_plugin_that_was_broken_afterwards_does_not_pass_its_own_tests(desk: Desk, language: str) -> None:
    desk.plugbay("new", "sky-map", "--lang", language, "--contract", "rune")
    source = next((desk.folder / "sky-map").glob("plugin.*"))
    source.write_text(source.read_text().replace("Hello, ", "Goodbye, "))
    done = desk.run(*OWN_TESTS[language], cwd="sky-map")
    assert done.returncode != 0
