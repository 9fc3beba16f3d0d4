"""systemd accepts the units, and what they start is what plugbay has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_snippets import ROOT
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
PROGRAM = "/opt/plugbay/bin/plugbay"


def problems(text: str, folder: Path) -> str:
    """What systemd finds in a unit whose program is that of this environment."""
    unit = folder / "tried.service"
    unit.write_text(text.replace(PROGRAM, str(Path(sys.executable).with_name("plugbay"))), "utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=PATIENCE
    )
    return "".join(line for line in done.stderr.splitlines(keepends=True) if unit.name in line)


@requirement("host:deploy-systemd")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_accepts_the_unit_and_finds_mistakes(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text("utf-8")
    assert problems(text, tmp_path) == ""
    assert "TimeoutStopSecs" in problems(text.replace("TimeoutStopSec=", "TimeoutStopSecs="), tmp_path)
    assert "not executable" in problems(text.replace(PROGRAM, "/no/such/program"), tmp_path)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_unit_says_how_plugbay_starts_stops_and_gets_its_secrets(unit: Path) -> None:
    text = unit.read_text("utf-8")
    for line in ("Type=notify", "KillMode=mixed", "TimeoutStopSec=90", "Delegate=yes"):
        assert f"\n{line}\n" in text
    command = re.search(rf"^ExecStart={PROGRAM} (\w+) (.*)$", text, re.MULTILINE)
    assert command is not None
    usage = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8")
    usage = usage.partition(f"### plugbay {command[1]}\n")[2].partition("\n### ")[0]
    options = re.findall(r"--[a-z-]+", command[2])
    assert options and [option for option in options if f"  {option} " not in usage] == []
    loaded = set(re.findall(r"^LoadCredential=([^:]+):", text, re.MULTILINE))
    assert loaded == set(re.findall(r"%d/(\S+)", text)), "each credential is loaded and used"
