"""A scenario: one rule of a contract as a conversation, written down as data.

    {"id": "rune.answer.echoes_id",
     "title": "answers with the request's id",
     "clause": "a response carries the request_id of its request",
     "after": ["rune.handshake.answers"],
     "steps": [{"send": {"type": "handshake", "protocol_version": "$protocol"}},
               {"expect": {"type": "handshake"}, "within": 2}]}

Owns the format of the files, every check of them, and where they are. Refuses to know how a step is carried
out. What is sent is a `template`, what is expected a pattern of `matchers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from plugbay.conformance.matchers import pattern_problems
from plugbay.conformance.template import template_problems
from plugbay.contracts.document import Document, dotted, parse_json
from plugbay.contracts.validation import suggestion, validate
from plugbay.model.errors import PlugbayError, Problem

FOLDER = Path(__file__).parent / "scenarios"

NAMES = frozenset("plugin_id plugin_version protocol tool tools capabilities request_id input".split())
"""Named values that every run has; the cases of a scenario add their own."""

GENERATORS = frozenset({"text", "input_with_string"})

Need = Literal["tool_to_call", "string_input", "capabilities"]
"""Parts of a plugin's surface without which a rule does not concern it."""

Seconds = Annotated[float, Field(gt=0, le=30, strict=False)]
"""No scenario waits longer than this for one thing; a run has to stay a coffee's length."""

Text = Annotated[str, Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Send(_Strict):
    """Write one JSON line. `escape` chooses between spellings of the same text that hosts really use."""

    send: Any
    ending: Literal["\n", "\r\n"] = "\n"
    escape: Literal["", "ascii", "html"] = ""


class SendRaw(_Strict):
    """Write this very text; no newline is added."""

    send_raw: Text


class Chunks(_Strict):
    message: Any
    bytes: Annotated[int, Field(ge=1)]
    pause: Annotated[float, Field(ge=0, le=0.1, strict=False)] = 0.0


class SendChunked(_Strict):
    """Write one JSON line in pieces of `bytes`, with a pause after each."""

    send_chunked: Chunks


class Expect(_Strict):
    """The next line must come in time, be one JSON object, and match."""

    expect: Any
    within: Seconds


class SkipUnless(_Strict):
    """The rule can only be tried if the last line matches this too."""

    skip_unless: Any
    because: Text


class ExpectSilence(_Strict):
    """Nothing may be written for so many seconds, or until the output ends."""

    expect_silence: Seconds


class ExpectRunning(_Strict):
    """The process must still be there after so many seconds."""

    expect_running: Seconds


class CloseStdin(_Strict):
    """Say good-bye: no more input will come."""

    close_stdin: Literal[True]


class Exit(_Strict):
    code: int | None = None
    within: Seconds


class ExpectExit(_Strict):
    """The process must leave in time, with this code if one is given."""

    expect_exit: Exit


class ExpectNoMoreOutput(_Strict):
    """Everything that was written must have been expected."""

    expect_no_more_output: Literal[True]


class ExpectNoOrphans(_Strict):
    """The process must leave in time, and nothing it started may be left at that moment."""

    expect_no_orphans: Annotated[dict[Literal["within"], Seconds], Field(min_length=1)]


Step = (
    Send
    | SendRaw
    | SendChunked
    | Expect
    | SkipUnless
    | ExpectSilence
    | ExpectRunning
    | CloseStdin
    | ExpectExit
    | ExpectNoMoreOutput
    | ExpectNoOrphans
)

STEPS: dict[str, type[Step]] = {
    "send": Send,
    "send_raw": SendRaw,
    "send_chunked": SendChunked,
    "expect": Expect,
    "skip_unless": SkipUnless,
    "expect_silence": ExpectSilence,
    "expect_running": ExpectRunning,
    "close_stdin": CloseStdin,
    "expect_exit": ExpectExit,
    "expect_no_more_output": ExpectNoMoreOutput,
    "expect_no_orphans": ExpectNoOrphans,
}
"""The verb of a step, and the shape of a step with that verb."""


def verb_of(step: Step) -> str:
    return next(verb for verb, kind in STEPS.items() if type(step) is kind)


class _File(_Strict):
    id: Annotated[str, Field(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+){2,}$")]
    title: Text
    clause: Text
    after: list[str] = []
    needs: list[Need] = []
    environment: Literal["usual", "manifest"] = "usual"
    for_each: Literal["tool"] | None = None
    cases: Annotated[list[dict[str, Any]], Field(min_length=1)] = [{}]
    steps: Annotated[list[Any], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One rule and the conversation that proves it."""

    id: str
    title: str
    clause: str
    """The rule of the contract, in words; a failure quotes it."""
    steps: tuple[Step, ...]
    after: tuple[str, ...] = ()
    """Rules without which this one cannot be tried."""
    needs: tuple[str, ...] = ()
    environment: str = "usual"
    """`usual`: what a login gives a program; `manifest`: exactly what the manifest names."""
    for_each: str | None = None
    cases: tuple[Mapping[str, Any], ...] = ({},)
    """The steps are carried out once per case, each in a new process, with the case's named values."""


class ScenarioInvalid(PlugbayError):
    """A scenario file cannot be used; the text lists every problem with its line."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        super().__init__(f"{source} cannot be used:\n" + "\n".join(f"  {problem}" for problem in self.problems))


def load_all(contract: str, folder: Path = FOLDER) -> list[Scenario]:
    """The scenarios of a contract, in the order of their file names."""
    scenarios: list[Scenario] = []
    for path in sorted((folder / contract).glob("*.json")):
        scenario = load(path)
        known = [earlier.id for earlier in scenarios]
        problems = [
            Problem("unknown_axis", "after", f"{name!r} is no axis of an earlier file")
            for name in scenario.after
            if name not in known
        ]
        if scenario.id in known:
            problems.append(Problem("duplicate_id", "id", f"{scenario.id!r} is the id of an earlier file, too"))
        if not scenario.id.startswith(f"{contract}."):
            problems.append(Problem("invalid_value", "id", f"must begin with '{contract}.'"))
        if problems:
            raise ScenarioInvalid(str(path), problems)
        scenarios.append(scenario)
    return scenarios


def load(path: Path) -> Scenario:
    """The scenario in a file."""
    try:
        return parse(path.read_text("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioInvalid(str(path), [Problem("unreadable", "", f"cannot be read: {error}")]) from error


def parse(text: str, source: str = "scenario") -> Scenario:
    """The scenario in `text`; raises `ScenarioInvalid` with every problem."""
    document = parse_json(text)
    if isinstance(document, Problem):
        raise ScenarioInvalid(source, [document])
    file, problems = validate(_File, document)
    steps, step_problems = _steps(document)
    problems += step_problems
    if file is None or problems:
        raise ScenarioInvalid(source, problems)
    return Scenario(
        id=file.id,
        title=file.title,
        clause=file.clause,
        steps=tuple(steps),
        after=tuple(file.after),
        needs=tuple(file.needs),
        environment=file.environment,
        for_each=file.for_each,
        cases=tuple(file.cases),
    )


def _steps(document: Document) -> tuple[list[Step], list[Problem]]:
    """The steps of a file and what is wrong with them, as far as they can be read at all."""
    value = document.value if isinstance(document.value, dict) else {}
    raw = value.get("steps")
    names = NAMES | _case_names(value.get("cases"))
    steps: list[Step] = []
    problems: list[Problem] = []
    for position, item in enumerate(raw if isinstance(raw, list) else []):
        path = ("steps", position)
        step = _step(item)
        if isinstance(step, str):
            problems.append(Problem("invalid_value", dotted(path), step, line=document.line(path)))
            continue
        found, wrong = _checked(step, item, names)
        problems += [_moved(problem, position, document) for problem in wrong]
        steps += [found] if found is not None else []
    return steps, problems


def _step(item: Any) -> str | type[Step]:
    """The kind of a step, or why it has none."""
    if not isinstance(item, dict):
        return "a step is an object"
    verbs = [key for key in item if key in STEPS]
    if len(verbs) == 1:
        return STEPS[verbs[0]]
    if verbs:
        return f"one step cannot do both {verbs[0]!r} and {verbs[1]!r}"
    hint = next((text for key in item if (text := suggestion(key, STEPS))), "")
    return f"no verb of a step; there is {', '.join(STEPS)}{hint}"


def _checked(kind: type[Step], item: dict[str, Any], names: frozenset[str]) -> tuple[Step | None, list[Problem]]:
    step, problems = validate(kind, Document(item))
    texts: list[str] = []
    match step:
        case Send():
            texts = template_problems(step.send, names, GENERATORS)
        case SendChunked():
            texts = template_problems(step.send_chunked.message, names, GENERATORS)
        case Expect():
            texts = pattern_problems(step.expect, names)
        case SkipUnless():
            texts = pattern_problems(step.skip_unless, names)
    return step, problems + [Problem("invalid_value", "", text) for text in texts]


def _moved(problem: Problem, position: int, document: Document) -> Problem:
    """A problem of one step, as a problem of the file."""
    path = dotted(("steps", position)) + (f".{problem.path}" if problem.path else "")
    line = document.line(("steps", position, *problem.path.split(".")))
    return Problem(problem.code, path, problem.message, line=line)


def _case_names(cases: Any) -> frozenset[str]:
    tables = [case for case in cases if isinstance(case, dict)] if isinstance(cases, list) else []
    return frozenset(name for case in tables for name in case)
