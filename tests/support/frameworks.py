"""Programs that use plugbay and an agent framework, run with the packages of tests/frameworks/requirements.txt."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / ".peers" / "frameworks"
"""`make setup` installs them here."""


class FrameworkEnvironment:
    """An environment with the frameworks and with the plugbay of this folder, also for the plugins that it starts."""

    def __init__(self, folder: Path) -> None:
        assert (PACKAGES / ".installed").exists(), "the frameworks are not installed: make setup"
        # By the interpreter that the packages were installed for, which `make prove` does not change.
        made = [str(PACKAGES / "bin" / "python"), "-m", "venv", "--without-pip", str(folder)]
        subprocess.run(made, check=True, timeout=PATIENCE)
        (here,) = folder.glob("lib/python*/site-packages")
        (there,) = PACKAGES.glob("lib/python*/site-packages")
        (here / "shared.pth").write_text(f"{ROOT / 'src'}\n{there}\n", "utf-8")
        self._python = str(folder / "bin" / "python")

    def run(self, program: str, environment: Mapping[str, str]) -> str:
        """The output of a program, which must succeed."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [self._python, "-W", "error::RuntimeWarning", "-c", program],
            cwd=ROOT,
            env={**kept, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
