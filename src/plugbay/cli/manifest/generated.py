"""Generated manifests: the declarations of a Python source, the mark of generated files, plans of writes, and drift.

    # Written by plugbay from plugin.py (3f2a9c4b1d0e8f77). Change that file, then: plugbay manifest .

The number is a digest of the source without function bodies: it changes when declarations change. A file without the
mark was written by hand, and cannot drift. The author's code never runs in this process: `read_declarations` loads the
source in a separate one, and `add_drift_warnings` only compares digests, because `plugbay inspect` reads plugins that
are not trusted yet.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from plugbay.cli import exit_codes, lookup
from plugbay.cli.exit_codes import Exit, Refusal

if TYPE_CHECKING:
    from plugbay.conformance.reports.report import AxisResult
    from plugbay.host.discovery.folders import Found
    from plugbay.model.errors import Problem
    from plugbay.model.spec import PluginSpec


MARK = lookup.MARK + "{source}{digest}. Change that file, then: plugbay manifest .{left_out}"
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

PROGRAM = 0o755


class Mark(NamedTuple):
    """The source of a generated file, the digest of its declarations, and the declarations that are left out."""

    source: str
    digest: str
    left_out: str = ""


def read_mark(text: str) -> Mark | None:
    """Parse the mark of a file; None when there is none."""
    found = _MARK.search(text[: lookup.MARKED_BYTES])
    return None if found is None else Mark(found[1], found[2] or "", found[3] or "")


def add_mark(path: str, text: str, mark: Mark) -> str:
    """Add the mark where the format has a place for it."""
    first, newline, rest = text.partition("\n")
    if first.startswith("#!"):  # a launcher does not depend on the declarations, so it has no digest
        return f"{first}{newline}# {MARK.format(source=mark.source, digest='', left_out='')}\n{rest}"
    tail = LEFT_OUT.format(words=_UNSAFE.sub("?", mark.left_out)[:MAX_LEFT_OUT]) if mark.left_out else ""
    words = MARK.format(source=mark.source, digest=f" ({mark.digest})", left_out=tail)
    if path.endswith(".json"):
        return text if "/" in path else f'{first}\n  "$comment": "{words}",\n{rest}'  # schema files get no mark
    return f"# {words}\n{text}"


def strip_mark(text: str) -> str:
    """Remove the line of the mark."""
    head, tail = text[: lookup.MARKED_BYTES], text[lookup.MARKED_BYTES :]
    found = _MARK.search(head)
    if found is None:
        return text
    begin, end = head.rfind("\n", 0, found.start()) + 1, head.find("\n", found.end()) + 1
    return head[:begin] + head[end:] + tail


class NotPython(ValueError):
    """A source cannot be parsed; the message has the line."""


def digest_source(source: bytes) -> str:
    """Digest of a source's declarations; raises `NotPython`.

    Leaves out function bodies except docstrings, comments and whitespace.
    """
    try:
        outline = ast.unparse(_Outline().visit(ast.parse(source)))
    except SyntaxError as error:
        raise NotPython(f"line {error.lineno}: {type(error).__name__}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL, or nested too deeply, on purpose
        raise NotPython(f"it is not Python: {type(error).__name__}") from None
    return hashlib.sha256(outline.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


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


class Plan(msgspec.Struct, frozen=True):
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
        return list(difflib.unified_diff(old, new, self.path, f"{self.path} from the source", lineterm="", n=1))


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


def write_file(folder: Path, plan: Plan) -> None:
    """Write the planned file; a launcher becomes executable."""
    file = folder / plan.path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(plan.text.encode("utf-8"))
    if plan.text.startswith("#!"):
        file.chmod(PROGRAM)


LOAD_TIMEOUT_S = 20.0
"""For a source to reach its `plugin.run()`: ten times the handshake timeout of rune."""

_PLACE = re.compile(r'\s*File "(.+)", line (\d+)')
"""A frame of a traceback, or the place of a syntax error."""

LAST_LINES = 6
"""Lines of a traceback that are kept: the error and where it was raised."""

READ_SIZE = 65_536


class Unusable(Refusal):
    """There is no source, or it cannot be loaded. `lines` are the last lines of its stderr."""

    def __init__(
        self, message: str, *, hint: str = "", lines: tuple[str, ...] = (), status: int = Exit.INVALID
    ) -> None:
        super().__init__(exit_codes.to_failure(message, hint, status, stderr_tail=list(lines)), status=status)
        self.message = message
        self.hint = hint
        self.lines = lines


class Declarations(NamedTuple):
    """The declarations of a source: for each contract, its files or the reason why there are none."""

    source: Path
    id: str
    version: str
    contracts: dict[str, dict[str, Any]]
    unchecked: list[str]
    """Annotations of tools without a schema, whose values are not validated."""
    misfits: list[str]
    """Defaults of tools that do not match their annotations."""
    served: bool
    """Whether the source calls `plugin.run()`."""


def find_source(path: Path) -> Path:
    """The plugin's source: `path` itself, or the file in the folder; raises `Unusable`."""
    if path.is_file() and path.suffix == ".py":
        return path
    if not path.is_dir():
        text = f"{path} is not a Python source" if path.exists() else f"{path} does not exist"
        raise Unusable(text, hint="name the folder of a plugin, or its source", status=Exit.NOT_FOUND)
    if (path / lookup.SOURCE).is_file():
        return path / lookup.SOURCE
    found = [file for file in sorted(path.glob("*.py")) if lookup.uses_sdk(file)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(file.name for file in found)
    text = f"several sources in {path} use plugbay.sdk: {names}" if found else f"no source in {path} uses plugbay.sdk"
    hint = "name the source of the plugin" if found else "plugbay manifest supports plugins with the Python SDK only"
    raise Unusable(text, hint=hint, status=Exit.USAGE if found else Exit.NOT_FOUND)


def read_declarations(source: Path, timeout: float = LOAD_TIMEOUT_S) -> Declarations:
    """Load a source and return its declarations; raises `Unusable`."""
    with TemporaryFile() as stderr:  # not a pipe, which a grandchild could hold open
        status, out = _run_source(source, timeout, stderr)
        stderr.seek(0)
        if status != 0 and not out:
            raise _load_failure(source, stderr.read().decode("utf-8", "backslashreplace"))
    try:
        answer = json.loads(out)
        return Declarations(source, *(answer[key] for key in Declarations._fields[1:]))
    except (ValueError, KeyError, TypeError):
        text = f"{source} exited before its declarations could be read"
        raise Unusable(text, hint="remove calls of os._exit() at import time") from None


def _python_path() -> str:
    """PYTHONPATH with this plugbay first: the child starts in the plugin's folder and would search elsewhere."""
    import plugbay

    ours = str(Path(plugbay.__file__).parents[1])
    return os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH", ""))))


def _run_source(source: Path, timeout: float, stderr: IO[bytes]) -> tuple[int, bytes]:
    """Run the source; return the exit status and stdout. Raises `Unusable` after the timeout."""
    child = subprocess.Popen(
        [sys.executable, "-m", "plugbay.sdk.describe", source.name],
        cwd=source.parent,
        env={**os.environ, "PYTHONPATH": _python_path(), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
    )
    assert child.stdout is not None
    with child.stdout as stdout:
        try:
            out = _read_all(stdout.fileno(), time.monotonic() + timeout)
        finally:
            os.killpg(child.pid, signal.SIGKILL)  # before it is reaped: afterwards its pid may be reused
            status = child.wait()
    if out is None:
        hint = "move slow work from the module level into the handlers"
        text = f"{source} did not reach plugin.run() within {timeout:g} s"
        raise Unusable(text, hint=hint, status=Exit.TIMEOUT)
    return status, out


def _read_all(stream: int, deadline: float) -> bytes | None:
    """Read to the end of file; None when the deadline passes first."""
    parts = [b""]
    while select.select([stream], [], [], max(deadline - time.monotonic(), 0.0))[0]:
        parts.append(os.read(stream, READ_SIZE))
        if not parts[-1]:
            return b"".join(parts)
    return None


def _load_failure(source: Path, stderr: str) -> Unusable:
    lines = tuple(_author_frames(line for line in stderr.splitlines() if line.strip()))[-LAST_LINES:]
    last = lines[-1] if lines else "it exited without a message"
    hint = "run plugbay in an environment where the modules of the plugin are installed"
    missing = last.startswith("ModuleNotFoundError")
    places = [found for line in lines if (found := _PLACE.match(line))]
    file, line = places[-1].groups() if places else ("", "")
    where = f"{'' if file == source.name else f'{file}, '}line {line}: " if line else ""
    return Unusable(f"{source} cannot be loaded: {where}{last}", hint=hint if missing else "", lines=lines[:-1])


def _author_frames(lines: Iterable[str]) -> Iterator[str]:
    """A traceback without the frames of the loader, so that the author's own lines remain."""
    import plugbay.sdk

    foreign = ('  File "<frozen runpy>', f'  File "{Path(plugbay.sdk.__file__).parent}{os.sep}')
    hidden = False
    for line in lines:
        hidden = line.startswith(foreign) if line.startswith('  File "') else hidden and line.startswith("   ")
        if not hidden:
            yield line


CODE = "manifest_drift"
NOT_PYTHON = "source_invalid"
AXIS = "manifest.drift"
TITLE = "has a manifest that matches its source"

MAX_LINES = 40
"""Lines of a diff in a report."""


def add_drift_warnings(found: Found) -> Found:
    """Add warnings if the source of the manifest has changed, or never calls `run()`. Runs nothing."""
    problems = tuple(problem for problem in (_drift_problem(found), _unserved_problem(found)) if problem is not None)
    return replace(found, problems=(*found.problems, *problems)) if problems else found


def _unserved_problem(found: Found) -> Problem | None:
    from plugbay.model.errors import Problem

    mark = _mark(found)
    plugin = None if mark is None else find_unserved(_source(found.root / mark.source))
    if mark is None or plugin is None:
        return None
    text = f"its source {mark.source} {NEVER_RUNS_TEXT.format(plugin=plugin)}"
    return Problem(NEVER_RUNS, "", text, severity="warning")


def _source(file: Path) -> bytes:
    """The source; empty if it cannot be read or is too large."""
    try:
        return file.read_bytes() if file.stat().st_size <= lookup.MAX_SOURCE else b""
    except OSError:
        return b""


def _drift_problem(found: Found) -> Problem | None:
    from plugbay.model.errors import Problem

    mark = _mark(found)
    if mark is None:
        return None
    try:
        if not _has_changed(found.root / mark.source, mark):
            return None
        text = f"the declarations of {mark.source} have changed since this manifest was written"
    except FileNotFoundError:
        text = f"its source {mark.source} does not exist any more"
    except NotPython as error:
        return Problem(
            NOT_PYTHON, "", f"its source {found.root / mark.source} cannot be used: {error}", severity="warning"
        )
    except OSError as error:
        text = f"its source {mark.source} cannot be read: {error}"
    command = f"plugbay manifest {shlex.quote(str(found.root))}"
    return Problem(CODE, "", f"{text}; {command} updates it, --check shows the differences", severity="warning")


def _has_changed(source: Path, mark: Mark) -> bool:
    """Whether the declarations of a source differ from those of a mark; raises OSError and `NotPython`."""
    if source.stat().st_size > lookup.MAX_SOURCE:
        return False
    return digest_source(source.read_bytes()) != mark.digest


def find_stale(folder: Path) -> dict[Path, list[str]]:
    """The sources whose declarations have changed since manifests of this folder were generated from them, and the
    contracts of these manifests. A source that cannot be read has none.
    """
    from plugbay.contracts.registry import CONTRACTS
    from plugbay.host.discovery.folders import contracts_in

    stale: dict[Path, list[str]] = {}
    for contract in contracts_in(folder):
        heads = (lookup.read_head(folder / name) for name in CONTRACTS[contract].manifest_files)
        mark = read_mark(next(filter(None, heads), b"").decode("utf-8", "replace"))
        try:
            if mark is not None and _has_changed(folder / mark.source, mark):
                stale.setdefault(folder / mark.source, []).append(contract)
        except (OSError, NotPython):
            continue
    return stale


def read_left_out(found: Found) -> str:
    """The declarations that the contract cannot carry, as listed in the mark of the manifest."""
    mark = _mark(found)
    return "" if mark is None else mark.left_out


def _mark(found: Found) -> Mark | None:
    name = lookup.manifest_name(found)
    return read_mark(lookup.read_head(found.root / name).decode("utf-8", "replace")) if name else None


def check_drift(found: Found) -> AxisResult | None:
    """Load the source and compare; the result is an axis of `plugbay conform`. None when the manifest has no mark."""
    from plugbay.conformance.reports.report import AxisResult, Status

    mark = _mark(found)
    if mark is None:
        return None
    try:
        detail = "\n".join(_differences(found, found.root / mark.source))
    except Unusable as error:
        detail = "\n".join([error.message, *(f"stderr: {line}" for line in error.lines)])
    status = Status.FAILED if detail else Status.PASSED
    return AxisResult(f"{found.contract}.{AXIS}", TITLE, status, detail)


def _differences(found: Found, source: Path) -> list[str]:
    entry = read_declarations(source).contracts[found.contract]
    if entry["why_not"]:
        return [f"the source has no manifest for this contract any more: {entry['why_not']}"]
    texts = {file["path"]: file["text"] for file in entry["files"]}
    plans = [plan for plan in plan_from_source(found.root, texts, source, entry["left_out"]) if plan.drifted]
    if not plans:
        return []
    spec, _ = parse_files(texts, found.root)
    words = [] if spec is None or found.spec is None else list(_describe_differences(found.spec, spec))
    lines = [f"line: {line}" for plan in plans for line in plan.difference()]
    first = "; ".join(words) or "the manifest differs from the source"
    return [first, *lines[:MAX_LINES], f"hint: plugbay manifest {found.root} updates it"]


def plan_from_source(folder: Path, texts: dict[str, str], source: Path, left_out: Sequence[str] = ()) -> list[Plan]:
    """Plan to write these files from this source into a folder; raises `Unusable`."""
    try:
        digest = digest_source(source.read_bytes())
    except NotPython as error:
        raise Unusable(f"{source}: {error}") from None
    return plan_files(folder, texts, Mark(source.name, digest, "; ".join(left_out)))


def parse_files(texts: dict[str, str], folder: Path) -> tuple[PluginSpec | None, tuple[Problem, ...]]:
    """Parse these files as if they were in a folder of that name."""
    from plugbay.host.discovery.folders import inspect

    with TemporaryDirectory(prefix="plugbay-manifest-") as place:
        root = Path(place) / (os.path.basename(folder.resolve()) or "plugin")
        for path, text in texts.items():
            write_file(root, Plan(path, text, None, Change.NEW))
        found = inspect(root)
    return found.spec, found.problems


def _describe_differences(old: PluginSpec, new: PluginSpec) -> Iterator[str]:
    """Describe the differences between manifest and source, the most important first."""
    if old.version != new.version:
        yield f"the version is {new.version}, not {old.version}"
    before = {(export.kind, export.name): export for export in old.exports}
    after = {(export.kind, export.name): export for export in new.exports}
    for kind, name in sorted(after.keys() - before.keys()):
        yield f"the {kind} {name} is missing"
    for kind, name in sorted(before.keys() - after.keys()):
        yield f"the {kind} {name} is not in the source"
    for key in sorted(after.keys() & before.keys()):
        if after[key].input_schema != before[key].input_schema:
            yield f"the schema of {key[1]} differs"
        if after[key].description != before[key].description:
            yield f"the description of {key[1]} differs"
    if old.capabilities != new.capabilities:
        yield f"the source requests {', '.join(new.capabilities) or 'no capabilities'}"


# Plugins that are never served.

NEVER_RUNS = "never_runs"

NEVER_RUNS_TEXT = "never calls {plugin}.run(), so it would exit at once; call it in the last line"


def find_unserved(source: bytes) -> str | None:
    """The name of a plugin that a source creates and never serves; None if there is none, or in doubt.

    Serving is `plugin.run()`, or passing the plugin to other code that may call it.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    made = {name for node in tree.body for name in _plugin_names(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr == "run":
                return None
            node.value.id = ""  # a declaration such as `@plugin.tool` does not serve it
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return next(iter(made)) if len(made) == 1 and not made & used else None


def _plugin_names(node: ast.stmt) -> list[str]:
    """The names that a statement assigns a new `Plugin` to."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return []
    maker = ast.unparse(node.value.func).split(".")
    if maker[-1] == "from_manifest":
        maker.pop()
    return [target.id for target in node.targets if isinstance(target, ast.Name)] if maker[-1] == "Plugin" else []
