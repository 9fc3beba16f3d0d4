"""Requests, outcomes and refusals of calls, and their views: for people, or in the public JSON shape.

Also has the failures of calls that never began, and prints the steps of `--trace`. `plugbay.cli.app` uses the same
views for every error, so the JSON shape here is the shape of all failures.
"""

from __future__ import annotations

import difflib
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from plugbay.cli import exit_codes, lookup
from plugbay.cli.exit_codes import Refusal
from plugbay.cli.lookup import count_problems
from plugbay.cli.render import output
from plugbay.model.errors import Code, Failure
from plugbay.model.text import error_excerpt

if TYPE_CHECKING:
    from plugbay.host.discovery.folders import Found
    from plugbay.host.ports import CallRecord
    from plugbay.model.errors import ConfigInvalid, ManifestInvalid, Problem

STDERR_LINES = 10
"""Lines of the plugin's stderr tail that are shown."""

MAX_LISTED = 12

HINTS = {
    Code.TIMEOUT: "--timeout gives the call more time; timeouts in plugbay.toml also cover the handshake",
    Code.FRAME_TOO_LARGE: "return less data, or a reference to the data",
    Code.MALFORMED_RESPONSE: "only protocol messages may go to stdout; print to stderr instead",
    Code.INVALID_INPUT: "plugbay inspect shows the input schema",
    Code.TOOL_NOT_EXPOSED: "the manifest and the plugin disagree; plugbay conform shows the details",
}
"""Default hints for failures without a hint of their own."""


class CallRequest(NamedTuple):
    """One call, for a local host or for the server."""

    name: str
    input: Any
    context: dict[str, Any]
    timeout: float | None
    on_progress: Callable[[Any], None] | None = None


class CallOutcome:
    """The record of a call, its output, and the exit status; `status` is given when a signal ended it."""

    def __init__(self, name: str, record: CallRecord | None, output: Any = None, status: int | None = None) -> None:
        self.name = name
        self.record = record
        self.output = output
        self.interrupted = status is not None
        failure = record.failure if record else None
        self.status = status if status is not None else exit_codes.for_failure(failure) if failure else 0


# Failures of calls that never began.


def invalid_input(message: str, hint: str = "") -> Failure:
    return Failure(Code.INVALID_INPUT, message, detail={"hint": hint} if hint else {})


def no_such_plugin(path: str, reason: str) -> Failure:
    """The failure for an argument that names no folder; `reason` is why it names no plugin id either."""
    hint = f"name the folder of its plugins: plugbay call {shlex.quote(path)} … --plugins DIR"
    return Failure(Code.NOT_FOUND, f"there is no folder {path}, and {reason}", detail={"hint": hint})


def unknown_id(plugin_id: str, known: Sequence[str]) -> Failure:
    near = difflib.get_close_matches(plugin_id, known, n=1)
    text = f"no plugin has the id {plugin_id!r}; "
    text += f"did you mean {near[0]!r}?" if near else f"known ids: {', '.join(known[:MAX_LISTED])}"
    return Failure(Code.NOT_FOUND, text, detail={"candidates": list(near or known[:MAX_LISTED])})


def no_usable_plugin(place: Path, found: Sequence[Found]) -> Failure:
    broken = [item for item in found if not lookup.is_absent(item)]
    if not broken:
        bare = lookup.without_manifest(place)
        hint = "name the folder of a plugin, which holds its manifest, or a folder of such folders"
        hint = lookup.manifest_hint(bare[0]) if bare else hint
        return Failure(Code.NOT_FOUND, f"there is no plugin in {place}", detail={"hint": hint})
    errors = [problem for item in broken for problem in item.errors]
    text = f"{broken[0].root} cannot be used: its manifest has {count_problems(errors)}"
    if len(broken) > 1:
        text = f"none of the {len(broken)} plugins in {place} can be used: {count_problems(errors)} in all"
    return Failure(Code.UNAVAILABLE, text, detail={"problems": [problem.to_json() for problem in errors]})


def invalid_file(error: ConfigInvalid | ManifestInvalid) -> Failure:
    detail = {"problems": [problem.to_json() for problem in error.problems]}
    return Failure(Code.UNAVAILABLE, str(error), detail=detail)


# The two views.


class JsonView:
    """Prints the public JSON shape on stdout, for success and failure."""

    def show_warnings(self, found: Sequence[Found], grants: Iterable[str]) -> None:
        """Prints nothing: programs use `plugbay inspect --json`."""

    def show_progress(self, item: Any) -> None:
        """Print one line for each progress item, before the outcome."""
        output.print_line({"progress": item})

    def show_refusal(self, refusal: Refusal) -> None:
        self._print(None, refusal.failure, None)

    def show_outcome(self, outcome: CallOutcome) -> None:
        record = outcome.record
        failure = record.failure if record else Failure(Code.CANCELLED, "interrupted before the call began")
        self._print(record, failure, outcome.output)

    def _print(self, record: CallRecord | None, failure: Failure | None, value: Any) -> None:
        output.print_json(
            {
                "status": failure.outcome if failure else "succeeded",
                "output": value,
                "failure": failure.to_json() if failure else None,
                "plugin": {
                    "id": (record and record.plugin) or None,
                    "version": (record and record.version) or None,
                    "contract": (record and record.contract) or None,
                },
                "call_id": record.call_id if record else None,
                "duration_ms": record.duration_ms if record else 0.0,
            }
        )


class HumanView:
    """Prints the output on stdout; a line, or a block about the failure, on stderr."""

    def show_warnings(self, found: Sequence[Found], grants: Iterable[str]) -> None:
        specs = [item.spec for item in found if item.spec]
        requested = {name for spec in specs for name in (*spec.capabilities, *spec.optional_capabilities)}
        for name in () if any(spec.requests_at_run_time for spec in specs) else grants:
            if name not in requested:
                listed = ", ".join(sorted(requested)) or "none"
                output.note(f"--grant {name} has no effect: no plugin requests it; requested capabilities: {listed}")
        _show_folders(found)

    def show_progress(self, item: Any) -> None:
        """Print one line of JSON for each progress item; the result follows."""
        output.print_line(item)

    def show_refusal(self, refusal: Refusal) -> None:
        failure = refusal.failure
        wrote = error_excerpt(failure.detail.get("stderr_tail", ()), STDERR_LINES)
        output.problem("\n".join([failure.message, *wrote]), hint=str(failure.detail.get("hint", "")))
        _show_folders(refusal.found)

    def show_outcome(self, outcome: CallOutcome) -> None:
        record = outcome.record
        if record is None or outcome.interrupted:
            output.err().line(
                (output.BAD, output.BAD_STYLE), " ", (outcome.name, output.NAME), output.DOT, "interrupted"
            )
            return
        if record.failure is None:
            output.print_document(b"null" if outcome.output is None else bytes(outcome.output))
        self._head(record)
        if record.failure is not None:
            show_failure(record.failure)

    def _head(self, record: CallRecord) -> None:
        name = f"{record.plugin}/{record.export}" if record.plugin else record.export
        failure = record.failure
        mark = (output.BAD, output.BAD_STYLE) if failure else (output.OK, output.GOOD_STYLE)
        code = (f"{output.DOT}{failure.code}" if failure else "", output.BAD_STYLE)
        tail = f"{output.DOT}{output.duration(record.duration_ms)}{output.DOT}{record.call_id}"
        output.err().line(mark, " ", (name, output.NAME), code, (tail, output.DIM))


def _show_folders(found: Sequence[Found]) -> None:
    """Show all problems of a single plugin; of several plugins, only those that are left out."""
    if len(found) == 1 and not lookup.is_absent(found[0]):
        show_problems(output.err(), found[0], [each for each in found[0].problems if each.code not in SHOWN_ELSEWHERE])
        for choice in (each for each in found[0].problems if each.code == SEVERAL):
            output.note(choice.message)
        return
    for item in found:
        if item.errors and not lookup.is_absent(item):
            name = f"{item.entry} of {item.root}" if item.entry else str(item.root)
            text = f"{name} is left out: its manifest has {count_problems(item.errors)}"
            output.note(f"{text}; plugbay inspect {shlex.quote(str(item.root))} lists them")


DRIFT = frozenset({"manifest_drift", "source_invalid", "never_runs"})
"""Problems of a generated manifest."""


def drift_warnings(found: Iterable[Found]) -> list[str]:
    """A sentence for each generated manifest that does not fit its source any more."""
    return [f"{item.root}: {problem.message}" for item in found for problem in item.problems if problem.code in DRIFT]


def missing_manifests(place: Path) -> list[str]:
    """A sentence for each folder with a source of the SDK that has no manifest, and is left out for that."""
    bare = lookup.without_manifest(place)
    return [f"{folder} has no manifest and is left out; {lookup.manifest_hint(folder)}" for folder in bare[:MAX_LISTED]]


def show_problems(printer: output.Printer, found: Found, problems: Sequence[Problem], indent: int = 2) -> None:
    """Print each problem with its file and line, code and message."""
    place = str(found.root / lookup.manifest_name(found))
    for problem in problems:
        error = problem.severity == "error"
        mark = (output.BAD, output.BAD_STYLE) if error else (output.WARN, output.WARN_STYLE)
        where = f"{place}:{problem.line}" if problem.line else place
        printer.line(mark, f" {where}  ", (problem.code, output.CODE), indent=indent)
        subject = f"{problem.path}: " if problem.path else ""
        printer.line(f"{subject}{problem.message}", indent=indent + 2)


SEVERAL = "several_manifests"

SHOWN_ELSEWHERE = frozenset({SEVERAL, "command_unusable"})
"""Problems shown elsewhere: the chosen contract is a note, and the failure of the call explains an unusable command."""

SHOWN = frozenset("hint cause exit exit_code signal stderr_tail errors candidates problems plugin_code command".split())
"""Details that are printed as their own field or are part of the message."""


def show_failure(failure: Failure) -> None:
    """Print the details of a failure, below the line that names it."""
    detail, page = failure.detail, output.err()
    if detail.get("exit") and failure.code == Code.CRASHED:
        page.field("exit", str(detail["exit"]), label_style=output.BAD_STYLE)
    page.line(failure.message, indent=2)
    for error in detail.get("errors", [])[1:]:
        page.line(f"{error['path']}: {error['rule']}", indent=2)
    content = _content_text(detail.get("result"))
    if content not in ("", failure.message):
        page.field("content", content)
    code = _own_code(detail)
    if code not in (None, "", failure.code):
        page.field("own code", str(code))
    if detail.get("cause") and not str(detail["cause"]).endswith(f"({detail.get('exit')})"):
        page.field("cause", str(detail["cause"]))
    if detail.get("command"):
        page.field("command", shlex.join(detail["command"]))
    _show_more(detail, page)
    if detail.get("exit") and failure.code != Code.CRASHED:
        page.field("exit", str(detail["exit"]))
    if detail.get("stderr_tail"):
        page.field("stderr", "\n".join(error_excerpt(detail["stderr_tail"], STDERR_LINES)))
    hint = detail.get("hint") or HINTS.get(failure.code)
    if hint:
        page.field("hint", str(hint), label_style=output.CODE)


def _show_more(detail: Mapping[str, Any], page: output.Printer) -> None:
    for key, value in detail.items():
        if key not in SHOWN and isinstance(value, str | int | float):
            page.field(key, str(value))


def _content_text(result: Any) -> str:
    """The text of the result that a plugin answered with its failure."""
    items = result.get("content") if isinstance(result, dict) else None
    texts = [item.get("text") for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return "\n".join(text for text in texts if isinstance(text, str))


def _own_code(detail: Mapping[str, Any]) -> Any:
    """The plugin's own error code: `data.code` if present, because JSON-RPC codes are only numbers."""
    data = detail.get("data")
    return data.get("code", detail.get("plugin_code")) if isinstance(data, dict) else detail.get("plugin_code")


class StepPrinter:
    """Prints the steps of a call on stderr, with the milliseconds since the first step."""

    def __init__(self) -> None:
        self._began: float | None = None

    def __call__(self, step: str) -> None:
        now = time.perf_counter()
        if self._began is None:
            self._began = now
        # Written directly: rich takes ten times as long to print a line as most steps take.

        stream = output.err().console.file
        stream.write(f"{(now - self._began) * 1000:9.2f} ms  {step}\n")
        stream.flush()
