"""The checks that keep the shape of the code: where the tree is and which files count as source.

Each test file here owns one rule, as a function of a tree, and shows that the rule can fail.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "plugbay"
TESTS = ROOT / "tests"

# Python files in these folders are data: plugins that misbehave on purpose, scripted conversations.
DATA_FOLDERS = ("conformance/bad_plugins/programs", "conformance/scenarios")


def python_files(package: Path) -> list[Path]:
    """Every Python file of a source tree; a tree without any is a mistake of the caller."""
    found = sorted(path for path in package.rglob("*.py") if "__pycache__" not in path.parts)
    if not found:
        raise FileNotFoundError(f"no Python files under {package}")
    return found


def is_data(path: Path, package: Path) -> bool:
    """Whether a file lies in one of the data folders of the source tree."""
    relative = path.relative_to(package).as_posix()
    return relative.startswith(tuple(f"{folder}/" for folder in DATA_FOLDERS))


def write_tree(root: Path, files: dict[str, str]) -> Path:
    """Make a small tree from relative names and texts; the seeded violations are built with it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root
