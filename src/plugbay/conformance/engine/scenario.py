"""The format of scenarios: the steps of a conversation with a plugin, as data, and the files that hold them.

Owns the shape of each step; `conversation` carries them out. Messages to send are a `template`, expected messages a
pattern of `patterns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidatorFunctionWrapHandler, WrapValidator

from plugbay.conformance.engine.patterns import pattern_problems
from plugbay.conformance.engine.template import PURE, template_problems
from plugbay.contracts.document import Document, dotted, parse_json
from plugbay.contracts.validation import suggestion, validate
from plugbay.model.errors import PlugbayError, Problem

Seconds = Annotated[float, Field(gt=0, le=30, strict=False)]
"""The longest time a scenario may wait for one thing, so that a run takes minutes."""

OF_THE_MANIFEST = ("$shutdown_timeout", "$hook_timeout")
"""Named values that a step can wait for in place of seconds."""


def _seconds_or_name(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return value if value in OF_THE_MANIFEST else check(value)


Patience = Annotated[Seconds, WrapValidator(_seconds_or_name)]
"""So many seconds, or as many as the manifest of the plugin says."""

Text = Annotated[str, Field(min_length=1)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Send(Strict):
    """Write one JSON message. `escape` chooses between spellings of the same text that hosts really use.

    `ending` and `header` are how the message is marked where that is not as usual; `{}` of a header is the length.
    """

    send: Any
    ending: Literal["\n", "\r\n"] | None = None
    header: Text | None = None
    escape: Literal["", "ascii", "html"] = ""


class SendRaw(Strict):
    """Write this text, or the text of a named value, exactly; no newline is added."""

    send_raw: Text


class Chunks(Strict):
    message: Any
    bytes: Annotated[int, Field(ge=1)]
    pause: Annotated[float, Field(ge=0, le=0.1, strict=False)] = 0.0


class SendChunked(Strict):
    """Write one JSON message in pieces of `bytes`, with a pause after each."""

    send_chunked: Chunks


class SendAll(Strict):
    """Write each item of a list as one JSON message, all of them at once."""

    send_all: Any


class Expect(Strict):
    """The next line must come in time, be one JSON object, and match.

    `remember` gives a name to what is at a path of it, for the steps that follow.
    """

    expect: Any
    within: Patience
    remember: dict[str, Text] = {}


class Find(Strict):
    """Some line in time must match, whatever comes before it; otherwise the rule is untried if `or_skip` says so.

    Waiting stops a moment after the line `until`.
    """

    find: Any
    until: Any = None
    within: Seconds
    or_skip: Text | None = None


class Every(Strict):
    """Every line that matches must match `must` too, until the line `until` and a moment longer.

    The line `until` has to come. Without any line that matches, the rule cannot be tried if `or_skip` says so.
    """

    every: Any
    must: Any
    until: Any
    within: Seconds
    or_skip: Text | None = None


class Tour(Strict):
    """Send these messages one after the other, each as soon as the request before it is answered, within its time.

    Lines that match `those` must match `must`, until a moment after the last answer, and all of them as a list must
    match `together`; if they do not yet, more of them are waited for, `patience` seconds. Without any, the rule cannot
    be tried if `or_skip` says so. `as_before`: what was answered with a result in the tour before must be so again.
    Unless `answered`, the tour ends where an answer does not come, and that is no matter.

    `repeat`: the requests that the lines answer. One that is unanswered when `patience` is over is sent again: if only
    the repetition is answered, the first one was lost; if neither is, the plugin is slow and the rule cannot be tried.
    """

    tour: Any
    within: Seconds
    those: Any = None
    must: Any = "$any"
    together: Any = "$any"
    patience: Seconds = 3.0
    or_skip: Text | None = None
    as_before: bool = False
    answered: bool = True
    repeat: Any = None


class Settle(Strict):
    """Ask this again and again: what is at the path `of` the answers must stop changing within `frames` of them.

    It has stopped when `alike` more answers are the same.
    """

    settle: Any
    of: Text
    frames: Annotated[int, Field(ge=1)]
    alike: Annotated[int, Field(ge=1)]
    within: Seconds


class Last(Strict):
    """The line that was read last must match this too."""

    last: Any


class SkipUnless(Strict):
    """The rule can only be tried if the last line matches this too."""

    skip_unless: Any
    because: Text


class AtMost(Strict):
    """No more than so many lines that match may come in so many seconds, whatever else does."""

    at_most: Annotated[int, Field(ge=0)]
    lines: Any
    within: Seconds


class ExpectSilence(Strict):
    """The plugin must write nothing for so many seconds, or until its output ends."""

    expect_silence: Seconds


class Words(Strict):
    contains: Text
    within: Seconds


class ExpectStderr(Strict):
    """These words must come on stderr in time; capitals do not matter."""

    expect_stderr: Words


class ExpectStderrWithout(Strict):
    """This text must not have come on stderr."""

    expect_stderr_without: Text


class ExpectRunning(Strict):
    """The process must still be there after so many seconds."""

    expect_running: Seconds


class CloseStdin(Strict):
    """Close the plugin's stdin."""

    close_stdin: Literal[True]


class Terminate(Strict):
    """Send SIGTERM."""

    terminate: Literal[True]


class Restart(Strict):
    """Send SIGKILL, and start the plugin again once it is dead."""

    restart: Literal[True]


class Exit(Strict):
    code: int | None = None
    within: Patience


class ExpectExit(Strict):
    """The process must leave in time, with this code if one is given."""

    expect_exit: Exit


class ExpectNoMoreOutput(Strict):
    """Everything that was written must have been expected."""

    expect_no_more_output: Literal[True]


class ExpectNoOrphans(Strict):
    """The process must leave in time, and nothing it started may be left at that moment."""

    expect_no_orphans: Annotated[dict[Literal["within"], Patience], Field(min_length=1)]


Step = (
    Send
    | SendRaw
    | SendChunked
    | SendAll
    | Expect
    | Find
    | Every
    | Tour
    | Settle
    | Last
    | SkipUnless
    | AtMost
    | ExpectSilence
    | ExpectStderr
    | ExpectStderrWithout
    | ExpectRunning
    | CloseStdin
    | Terminate
    | Restart
    | ExpectExit
    | ExpectNoMoreOutput
    | ExpectNoOrphans
)

STEPS: dict[str, type[Step]] = {
    "send": Send,
    "send_raw": SendRaw,
    "send_chunked": SendChunked,
    "send_all": SendAll,
    "expect": Expect,
    "find": Find,
    "every": Every,
    "tour": Tour,
    "settle": Settle,
    "last": Last,
    "skip_unless": SkipUnless,
    "at_most": AtMost,
    "expect_silence": ExpectSilence,
    "expect_stderr": ExpectStderr,
    "expect_stderr_without": ExpectStderrWithout,
    "expect_running": ExpectRunning,
    "close_stdin": CloseStdin,
    "terminate": Terminate,
    "restart": Restart,
    "expect_exit": ExpectExit,
    "expect_no_more_output": ExpectNoMoreOutput,
    "expect_no_orphans": ExpectNoOrphans,
}
"""The verb of a step, and the shape of a step with that verb."""


def get_verb(step: Step) -> str:
    return next(verb for verb, kind in STEPS.items() if type(step) is kind)


def list_templates(step: Step) -> list[Any]:
    """The message of a step."""
    match step:
        case Send():
            return [step.send] if step.header is None else [step.send, step.header]
        case SendRaw():
            return [step.send_raw]
        case SendChunked():
            return [step.send_chunked.message]
        case SendAll():
            return [step.send_all]
        case ExpectStderrWithout():
            return [step.expect_stderr_without]
        case Tour():
            return [step.tour] if step.repeat is None else [step.tour, step.repeat]
        case Settle():
            return [step.settle]
    return []


def patterns_of(step: Step) -> list[Any]:
    """The expectation of a step."""
    match step:
        case Expect():
            return [step.expect]
        case Find():
            return [step.find, step.until]
        case Every():
            return [step.every, step.must, step.until]
        case Tour():
            return [step.those, step.must, step.together]
        case Last():
            return [step.last]
        case SkipUnless():
            return [step.skip_unless]
        case AtMost():
            return [step.lines]
    return []


def find_shutdown_step(steps: Sequence[Step]) -> Step | None:
    """The step after which the process may exit while a later step checks for orphans."""
    if not any(isinstance(step, ExpectNoOrphans) for step in steps):
        return None
    return next((step for step in reversed(steps) if isinstance(step, Send)), None)


FOLDER = Path(__file__).parents[1] / "scenarios"

IDS = tuple("id id2 id3 id4 id5 id6 id7 id8 id9".split())
"""The ids of a scenario's own requests: new ones for each turn of a process. A question's own is `id`."""

NAMES = frozenset(IDS) | frozenset(
    "plugin_id plugin_version protocol tool tools capabilities request_id input question namespaces "
    "channel llm_provider hook vector_backend topic publishes "
    "method methods notifications storage_methods shutdown_timeout hook_timeout "
    "screen cli_namespace snapshot tour manifest init init_ungranted init_elsewhere publications may_publish bus "
    "read_roots gated_methods "
    "request body several hello place secret beside event_type output_schema statuses odd other_op "
    "initialize initialized discover meta versions params misfit resource address prompt filled_in".split()
)
"""Named values that every run has; the cases of a scenario and what its steps remember add to them."""

GENERATORS = frozenset({*PURE, "input_with_string", "stored", "filed"})

Need = Literal[
    "tool_to_call",
    "string_input",
    "capabilities",
    "tool",
    "no_tool",
    "channel",
    "llm_provider",
    "hook",
    "vector_backend",
    "topic",
    "question",
    "method",
    "notification",
    "compactor",
    "on_session_start",
    "on_session_idle",
    "pre_compact",
    "post_compact",
    "screen",
    "cli_namespace",
    "snapshot",
    "publication",
    "read_path",
    "action",
    "pub_sub",
    "harness",
    "secret",
    "scratch",
    "output_schema",
    "handshake_era",
    "resource",
    "prompt",
    "logging",
    "stdio",
]
"""Needs of a rule: without one of them, the rule does not apply to a plugin."""

Each = Literal[
    "tool",
    "method",
    "channel",
    "llm_provider",
    "hook",
    "vector_backend",
    "topic",
    "question",
    "screen",
    "cli_namespace",
    "snapshot",
    "compactor",
    "harness",
    "resource",
    "prompt",
]
"""The kinds that a scenario can be repeated for; `question`: every request that the plugin can answer."""


Level = Literal["rule", "advice"]
"""`rule`: the contract's text says so, and a plugin that breaks it fails. `advice`: the text does not say so; a finding
is shown, cites no clause and fails nothing."""


class Fixture(Strict):
    """How the program of an SDK's fixture is set up for a scenario."""

    manifest: Text
    """The text of the manifest it is given."""
    config: dict[str, Any] = {}
    capabilities: list[Text] = []
    """Capabilities that the SDK must have, or the rule does not apply to it."""


class _File(Strict):
    id: Annotated[str, Field(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+){2,}$")]
    title: Text
    clause: Text
    level: Level = "rule"
    section: Text | None = None
    after: list[str] = []
    needs: list[Need] = []
    environment: Literal["usual", "manifest"] = "usual"
    host: Text | None = None
    for_each: Each | None = None
    cases: Annotated[list[dict[str, Any]], Field(min_length=1)] = [{}]
    skip_when: Literal["any", "all"] = "any"
    learn: dict[str, Text] = {}
    fixture: Fixture | None = None
    opening: list[Any] | None = None
    steps: Annotated[list[Any], Field(min_length=1)]


class Scenario(msgspec.Struct, frozen=True):
    """One rule and the conversation that proves it."""

    id: str
    title: str
    clause: str
    """The rule or the advice in words; a finding quotes it."""
    section: str
    """The part of the contract's text that a rule is from, as the text calls it; empty for advice."""
    steps: tuple[Step, ...]
    """The steps for each target and each case: a turn."""
    after: tuple[str, ...] = ()
    """Rules without which this one cannot be tried."""
    needs: tuple[str, ...] = ()
    environment: str = "usual"
    """`usual`: the environment of a login; `manifest`: exactly the variables of the manifest."""
    host: str | None = None
    """The host that answers requests of the plugin; None: the default one of the contract."""
    for_each: str | None = None
    cases: tuple[Mapping[str, Any], ...] = ({},)
    """The steps are carried out once per case, with the case's named values."""
    opening: tuple[Step, ...] | None = None
    """Steps before the first turn of a process, which then has several turns. None: it has one turn."""
    skip_when: str = "any"
    """The rule counts as untried when `any` or only when `all` of its conversations were."""
    learn: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Kind of export → where the last line of the conversation describes the exports of that kind."""
    fixture: Fixture | None = None
    level: Level = "rule"


class ScenarioInvalid(PlugbayError):
    """A scenario file cannot be used; the text lists every problem with its line."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        super().__init__(f"{source} cannot be used:\n" + "\n".join(f"  {problem}" for problem in self.problems))


def load_all(contract: str, folder: Path = FOLDER) -> list[Scenario]:
    """The scenarios of a contract, in the order of their file names; `nexo/fixture` are those in a folder of it."""
    scenarios: list[Scenario] = []
    for path in sorted((folder / contract).glob("*.json")):
        scenario = load(path)
        known = {earlier.id: earlier for earlier in scenarios}
        problems = [problem for name in scenario.after if (problem := _check_predecessor(scenario, name, known))]
        if scenario.id in known:
            problems.append(Problem("duplicate_id", "id", f"{scenario.id!r} is the id of an earlier file too"))
        prefix = f"{contract.replace('/', '.')}."
        if not scenario.id.startswith(prefix):
            problems.append(Problem("invalid_value", "id", f"must begin with {prefix!r}"))
        if problems:
            raise ScenarioInvalid(str(path), problems)
        scenarios.append(scenario)
    return scenarios


def _check_predecessor(scenario: Scenario, name: str, known: Mapping[str, Scenario]) -> Problem | None:
    if name not in known:
        return Problem("unknown_axis", "after", f"{name!r} is not an axis of an earlier file")
    if scenario.level == "rule" and known[name].level == "advice":
        return Problem("invalid_value", "after", f"{name!r} is advice, and no rule depends on advice")
    return None


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
    opening, opening_problems = _opening(document)
    steps, step_problems = _steps(document)
    problems += [*opening_problems, *step_problems, *(_section_problems(file) if file is not None else ())]
    if file is None or problems:
        raise ScenarioInvalid(source, problems)
    return Scenario(
        id=file.id,
        title=file.title,
        clause=file.clause,
        section=file.section or "",
        steps=tuple(steps),
        after=tuple(file.after),
        needs=tuple(file.needs),
        environment=file.environment,
        host=file.host,
        for_each=file.for_each,
        cases=tuple(file.cases),
        opening=None if file.opening is None else tuple(opening),
        skip_when=file.skip_when,
        learn=dict(file.learn),
        fixture=file.fixture,
        level=file.level,
    )


def _section_problems(file: _File) -> list[Problem]:
    if file.level == "rule" and file.section is None:
        return [Problem("missing_field", "section", "a rule needs the section of the text that it is from")]
    if file.level == "advice" and file.section is not None:
        return [Problem("invalid_value", "section", "advice is not in the text, so it cites no section")]
    return []


def _opening(document: Document) -> tuple[list[Step], list[Problem]]:
    """The steps of an opening. They are the same for every turn, so they know no cases, and none can end a turn."""
    steps, problems = _listed(document, "opening", NAMES)
    if any(type(step) not in (Send, Expect) or getattr(step, "remember", None) for step in steps):
        path = ("opening",)
        words = "an opening consists of `send` and `expect`, and nothing of it is remembered"
        problems.append(Problem("invalid_value", dotted(path), words, line=document.line(path)))
    return steps, problems


def _steps(document: Document) -> tuple[list[Step], list[Problem]]:
    value = _table(document.value)
    return _listed(document, "steps", NAMES | _case_names(value.get("cases")) | _remembered(value.get("steps")))


def _listed(document: Document, key: str, names: frozenset[str]) -> tuple[list[Step], list[Problem]]:
    """The steps under a key of a file and what is wrong with them, as far as they can be read at all."""
    raw = _table(document.value).get(key)
    steps: list[Step] = []
    problems: list[Problem] = []
    for position, item in enumerate(raw if isinstance(raw, list) else []):
        path = (key, position)
        step = _step(item)
        if isinstance(step, str):
            problems.append(Problem("invalid_value", dotted(path), step, line=document.line(path)))
            continue
        found, wrong = _checked(step, item, names)
        problems += [_moved(problem, path, document) for problem in wrong]
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
    if step is None:
        return None, problems
    texts = [text for part in list_templates(step) for text in template_problems(part, names, GENERATORS)]
    texts += [text for part in patterns_of(step) for text in pattern_problems(part, names)]
    return step, problems + [Problem("invalid_value", "", text) for text in texts]


def _moved(problem: Problem, path: tuple[str, int], document: Document) -> Problem:
    """A problem of one step, as a problem of the file."""
    where = dotted(path) + (f".{problem.path}" if problem.path else "")
    return Problem(problem.code, where, problem.message, line=document.line((*path, *problem.path.split("."))))


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _case_names(cases: Any) -> frozenset[str]:
    tables = [case for case in cases if isinstance(case, dict)] if isinstance(cases, list) else []
    return frozenset(name for case in tables for name in case)


def _remembered(steps: Any) -> frozenset[str]:
    tables = [step.get("remember") for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    return frozenset(name for table in tables if isinstance(table, dict) for name in table)
