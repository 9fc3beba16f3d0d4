"""What a plugin pays before its first answer: `import plugbay.sdk` loads nothing heavy.

Two views of one rule. A bare interpreter shows what importing the SDK really loads; reading the source shows
heavy imports at module level in every file a plugin may load, also those behind a `try` that fails there.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture import SOURCE, write_tree
from tests.support.patience import PATIENCE

HEAVY_IN_SOURCE = frozenset({"asyncio", "dataclasses", "inspect", "logging", "msgspec", "pydantic", "typing"})
HEAVY_IN_PROCESS = HEAVY_IN_SOURCE | {"socket", "subprocess"}
# Manifests, specs and schemas are the host's: a plugin never loads them.
LIGHT_FILES = (
    "sdk/*.py",
    *(f"sdk/{room}/*.py" for room in ("contracts", "io", "runtime", "screens", "services", "types")),
    "wire/*.py",
    "contracts/base.py",
    "contracts/rpc.py",
    *(f"contracts/*/{name}.py" for name in ("machine", "messages", "errors")),
    *(f"contracts/kaged/{name}.py" for name in ("calls", "storage")),
    *(f"contracts/mcp/{name}.py" for name in "client client_features greeting listing requests server".split()),
    *(f"model/{name}.py" for name in ("values", "errors", "events", "operations", "text", "ids")),
)
# The host's codec: the one file below the SDK that may be heavy, and that no other light file may import.
HOST_CODEC = "fast_json"

CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
__import__(sys.argv[2])
print(*sorted(set(sys.modules) - before), sep="\\n")
"""


def modules_loaded_by(module: str, source_root: Path) -> set[str]:
    """The modules that a bare interpreter has after importing `module` and had not before."""
    command = [sys.executable, "-I", "-S", "-c", CHILD, str(source_root), module]
    child = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert child.returncode == 0, child.stderr
    return set(child.stdout.split())


def heavy_module_level_imports(package: Path) -> list[str]:
    """`file:line name` of each heavy import that runs when a file of a light package is imported."""
    files = [path for pattern in LIGHT_FILES for path in sorted(package.glob(pattern))]
    assert files, f"none of {LIGHT_FILES} under {package}"
    return [
        f"{path.relative_to(package)}:{line} {name}"
        for path in files
        if path.stem != HOST_CODEC
        for line, name in _imports(ast.parse(path.read_text(encoding="utf-8")).body)
        if _is_heavy(name)
    ]


def _imports(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    """Line and name of each import that runs with the body: not in functions, not under TYPE_CHECKING."""
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield from ((statement.lineno, name) for name in _names(statement))
        else:
            yield from _imports(_statements_run_with(statement))


def _names(statement: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    prefix = "." * statement.level + (statement.module or "")
    return [f"{prefix}.{alias.name}" for alias in statement.names]


def _statements_run_with(statement: ast.stmt) -> list[ast.stmt]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return []
    if isinstance(statement, ast.If) and ast.unparse(statement.test).endswith("TYPE_CHECKING"):
        return statement.orelse
    blocks: list[ast.AST] = [statement, *getattr(statement, "handlers", []), *getattr(statement, "cases", [])]
    fields = ("body", "orelse", "finalbody")
    return [inner for block in blocks for field in fields for inner in getattr(block, field, [])]


def _is_heavy(name: str) -> bool:
    parts = name.split(".")
    return parts[0] in HEAVY_IN_SOURCE or HOST_CODEC in parts


def test_importing_the_sdk_loads_nothing_heavy() -> None:
    loaded = modules_loaded_by("plugbay.sdk", SOURCE.parent)
    assert loaded & HEAVY_IN_PROCESS == set(), f"import plugbay.sdk loads {sorted(loaded)}"


def test_no_file_a_plugin_may_load_imports_anything_heavy() -> None:
    assert heavy_module_level_imports(SOURCE) == []


@pytest.mark.parametrize("name", sorted(HEAVY_IN_PROCESS - {"msgspec", "pydantic"}))
def test_a_heavy_import_below_the_sdk_is_seen_in_the_process(tmp_path: Path, name: str) -> None:
    write_tree(
        tmp_path,
        {
            "plugbay/__init__.py": "",
            "plugbay/sdk/__init__.py": "from plugbay.model import ids",
            "plugbay/model/ids.py": f"import {name}",
        },
    )
    assert name in modules_loaded_by("plugbay.sdk", tmp_path) & HEAVY_IN_PROCESS


def test_a_light_sdk_loads_only_itself(tmp_path: Path) -> None:
    write_tree(tmp_path, {"plugbay/__init__.py": "", "plugbay/sdk/__init__.py": "def f():\n    import asyncio\n"})
    assert modules_loaded_by("plugbay.sdk", tmp_path) == {"plugbay", "plugbay.sdk"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import asyncio", "1 asyncio"),
        ("import logging.handlers", "1 logging.handlers"),
        ("from typing import Any", "1 typing.Any"),
        ("try:\n    import msgspec\nexcept ImportError:\n    pass", "2 msgspec"),
        ("try:\n    pass\nexcept ImportError:\n    import inspect", "4 inspect"),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import typing", "4 typing"),
        ("class Late:\n    from dataclasses import field", "2 dataclasses.field"),
        ("from plugbay.wire import fast_json", "1 plugbay.wire.fast_json"),
        ("from .fast_json import Codec", "1 .fast_json.Codec"),
    ],
)
def test_a_heavy_import_at_module_level_is_reported(tmp_path: Path, text: str, found: str) -> None:
    write_tree(tmp_path, {"wire/lines.py": text})
    assert heavy_module_level_imports(tmp_path) == [f"wire/lines.py:{found}"]


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    import asyncio",
        "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from typing import Any",
        "import types, json\nfrom collections.abc import Callable",
    ],
)
def test_an_import_that_costs_nothing_is_left_alone(tmp_path: Path, text: str) -> None:
    heavy = "import msgspec"
    write_tree(tmp_path, {"sdk/plugin.py": text, "wire/fast_json.py": heavy, "host/host.py": heavy})
    assert heavy_module_level_imports(tmp_path) == []
