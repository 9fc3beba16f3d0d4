"""The mark of generated files, and the plan which of them are written again.

    # Written by plugbay from plugin.py (3f2a9c4b1d0e8f77). Change that file, then: plugbay manifest .

The number is a digest of the source without function bodies, computed without running it: it changes when declarations
change. A file without the mark was written by hand.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

MARK = "Written by plugbay from {source}{digest}. Change that file, then: plugbay manifest .{left_out}"
LEFT_OUT = " Left out here: {words}."
_MARK = re.compile(
    r"Written by plugbay from ([^/\\\n]+?)(?: \(([0-9a-f]{16})\))?\. Change that file, then: plugbay manifest \."
    r"(?: Left out here: ([\w ,;:/.?-]{1,1000})\.(?=[\"\n]|$))?"
)
_UNSAFE = re.compile(r"[^\w ,;:/.-]")
"""Characters that need escapes in a comment or a JSON string."""

DIGITS = 16
"""Hexadecimal digits of the digest; it detects changes, it is no protection against forgery."""

MAX_LEFT_OUT = 1000
"""Characters of the list of declarations that the contract cannot carry."""

MARKED_BYTES = 4096
"""The mark counts only in the first bytes of a file; further down it is a quotation."""

PROGRAM = 0o755


class Mark(NamedTuple):
    """The source of a generated file, the digest of its declarations, and the declarations that are left out."""

    source: str
    digest: str
    left_out: str = ""


def read_mark(text: str) -> Mark | None:
    """Parse the mark of a file; None when there is none."""
    found = _MARK.search(text[:MARKED_BYTES])
    return None if found is None else Mark(found[1], found[2] or "", found[3] or "")


def add_mark(path: str, text: str, mark: Mark) -> str:
    """Add the mark where the format has a place for it."""
    first, newline, rest = text.partition("\n")
    if first.startswith("#!"):  # a launcher does not depend on the declarations, so it has no digest
        return f"{first}{newline}# {MARK.format(source=mark.source, digest='', left_out='')}\n{rest}"
    said = LEFT_OUT.format(words=_UNSAFE.sub("?", mark.left_out)[:MAX_LEFT_OUT]) if mark.left_out else ""
    words = MARK.format(source=mark.source, digest=f" ({mark.digest})", left_out=said)
    if path.endswith(".json"):
        return text if "/" in path else f'{first}\n  "$comment": "{words}",\n{rest}'  # schema files get no mark
    return f"# {words}\n{text}"


def strip_mark(text: str) -> str:
    """Remove the line of the mark."""
    head, tail = text[:MARKED_BYTES], text[MARKED_BYTES:]
    found = _MARK.search(head)
    if found is None:
        return text
    begin, end = head.rfind("\n", 0, found.start()) + 1, head.find("\n", found.end()) + 1
    return head[:begin] + head[end:] + tail


def digest_source(source: bytes) -> str:
    """Digest of a source's declarations; raises ValueError when it is not Python.

    Leaves out function bodies except docstrings, comments and whitespace.
    """
    try:
        seen = ast.unparse(_Outline().visit(ast.parse(source)))
    except SyntaxError as error:
        raise ValueError(f"it is no Python: {error.msg}, line {error.lineno}") from None
    except (RecursionError, MemoryError) as error:  # nested too deeply, on purpose
        raise ValueError(f"it is no Python: {type(error).__name__}") from None
    return hashlib.sha256(seen.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


class _Outline(ast.NodeTransformer):
    """Replaces function bodies by their docstrings."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.body = [ast.Expr(ast.Constant(ast.get_docstring(node, clean=True)))]
        return node


class Change(StrEnum):
    """The effect of writing a file."""

    NEW = "new"
    SAME = "same"
    CHANGED = "changed"
    REMARKED = "remarked"
    """Only the mark would change."""
    FOREIGN = "foreign"
    """The file differs and has no mark: it was written by hand."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One file: its new text and its current one."""

    path: str
    text: str
    before: str | None
    change: Change

    @property
    def drifted(self) -> bool:
        return self.change in (Change.NEW, Change.CHANGED, Change.FOREIGN)

    def difference(self) -> list[str]:
        """A unified diff from the current file to the new one."""
        import difflib

        old, new = strip_mark(self.before or "").splitlines(), strip_mark(self.text).splitlines()
        return list(difflib.unified_diff(old, new, self.path, f"{self.path} by the source", lineterm="", n=1))


def plan_files(folder: Path, texts: Mapping[str, str], mark: Mark) -> list[Plan]:
    """Plan these files. The first is the manifest; its mark also covers files whose format has no place for one."""
    owned = read_mark(_text(folder / next(iter(texts), "")) or "") is not None
    return [_plan_file(folder / path, path, add_mark(path, text, mark), owned) for path, text in texts.items()]


def _plan_file(file: Path, path: str, text: str, owned: bool) -> Plan:
    before = _text(file)
    if before is None:
        return Plan(path, text, None, Change.NEW)
    if before == text:
        return Plan(path, text, before, Change.SAME)
    if strip_mark(before) == strip_mark(text):
        return Plan(path, text, before, Change.REMARKED)
    is_ours = read_mark(before) is not None or (owned and read_mark(text) is None)
    return Plan(path, text, before, Change.CHANGED if is_ours else Change.FOREIGN)


def _text(file: Path) -> str | None:
    try:
        return file.read_bytes().decode("utf-8", "backslashreplace")
    except (FileNotFoundError, IsADirectoryError):
        return None


def write(folder: Path, plan: Plan) -> None:
    """Write the planned file; a launcher becomes executable."""
    file = folder / plan.path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(plan.text.encode("utf-8"))
    if plan.text.startswith("#!"):
        file.chmod(PROGRAM)
