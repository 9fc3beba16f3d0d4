"""Builds the wheels and source distributions of plugbay and plugbay-sdk, their bills of materials and their sums.

The same commit gives the same bytes: the time in the archives is that of the commit (`SOURCE_DATE_EPOCH` overrides it),
and the build tools are those of constraints.txt.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from scripts.sbom import bill

ROOT = Path(__file__).parents[1]
PROJECTS = {"plugbay-sdk": "distributions/sdk", "plugbay": "."}
"""The folder of each distribution."""
SUMS = "SHA256SUMS"
DEFAULT_EPOCH = 1_580_601_600
"""2 February 2020, as hatchling has it; for a tree without a commit."""
CONTRIBUTORS = {"bench", "check", "dev", "dist", "docs", "examples", "test"}
FRAMEWORKS = {"langchain", "openai-agents", "pydantic-ai"}
"""Extras that are not in a bill: the frameworks are not installed where it is made."""


def commit_time(root: Path) -> int:
    """The time of the archives, in seconds."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    command = ["git", "-C", str(root), "log", "-1", "--format=%ct"]
    try:
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return DEFAULT_EPOCH


def build(root: Path, out: Path, epoch: int) -> list[Path]:
    """Build all artefacts into an empty folder. Each wheel is made from its source distribution."""
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise SystemExit(f"dist: {out} is not empty")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
    for folder in PROJECTS.values():
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(root / folder)]
        done = subprocess.run(command, env=environment, umask=0o022, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"dist: the build of {folder} failed\n{done.stdout}{done.stderr}")
    for name, folder in PROJECTS.items():
        _write_bill(name, root / folder, out, epoch)
    artefacts = sorted(out.iterdir())
    (out / SUMS).write_text("".join(f"{sum_}  {name}\n" for name, sum_ in sums(artefacts).items()), "utf-8")
    return artefacts


def sums(files: Iterable[Path]) -> dict[str, str]:
    """The SHA-256 sum of each file, by name."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _write_bill(name: str, project: Path, out: Path, epoch: int) -> None:
    artefacts = sorted(out.glob(f"{name.replace('-', '_')}-*"))
    version = artefacts[0].name.split("-")[1]
    extras = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    text = bill(name, version, sorted(extras.keys() - CONTRIBUTORS - FRAMEWORKS), sums(artefacts), epoch)
    (out / f"{name.replace('-', '_')}-{version}.cdx.json").write_text(text, "utf-8")


def main(arguments: list[str]) -> int:
    """Build, check the long descriptions, and list the artefacts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", default=ROOT / "dist", help="an empty folder")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to build")
    given = parser.parse_args(arguments)
    artefacts = build(given.root, given.out, commit_time(given.root))
    packages = [str(file) for file in artefacts if file.suffix != ".json"]
    checked = subprocess.run([sys.executable, "-m", "twine", "--no-color", "check", "--strict", *packages])
    for file in artefacts:
        print(f"{file.stat().st_size:>10,}  {file.name}")
    return checked.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
