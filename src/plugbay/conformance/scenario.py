"""A scenario: one rule of a contract as a conversation, written down as data.

    {"id": "rune.answer.echoes_id",
     "title": "answers with the request's id",
     "clause": "a response carries the request_id of its request",
     "section": "execute response",
     "after": ["rune.handshake.answers"],
     "steps": [{"send": {"type": "handshake", "protocol_version": "$protocol"}},
               {"expect": {"type": "handshake"}, "within": 2}]}

What is repeated for each tool, or in several cases, is asked in turns of one process if it says how that is opened:

    {"for_each": "tool",
     "opening": [{"send": "$initialize"}, {"expect": {"id": 1}, "within": 15}],
     "steps": [{"send": {"id": "$id", "method": "tools/call", "params": {"name": "$tool"}}},
               {"expect": {"id": "$id"}, "within": 30}]}

Owns the format of the files, every check of them, and where they are. Refuses to know the steps (`steps`) and how
one is carried out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from plugbay.conformance.matchers import pattern_problems
from plugbay.conformance.steps import STEPS, Expect, Send, Step, Strict, Text, patterns_of, templates_of
from plugbay.conformance.template import PURE, template_problems
from plugbay.contracts.document import Document, dotted, parse_json
from plugbay.contracts.validation import suggestion, validate
from plugbay.model.errors import PlugbayError, Problem

FOLDER = Path(__file__).parent / "scenarios"

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
]
"""Parts of a plugin's surface without which a rule does not concern it."""

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
"""What a scenario can be repeated for; `question`: each thing the plugin can be asked, of any kind."""


class Fixture(Strict):
    """How the program of an SDK's fixture is set up for a scenario."""

    manifest: Text
    """The text of the manifest it is given."""
    config: dict[str, Any] = {}
    capabilities: list[Text] = []
    """What the SDK must have, or the rule does not concern it."""


class _File(Strict):
    id: Annotated[str, Field(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+){2,}$")]
    title: Text
    clause: Text
    section: Text
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


@dataclass(frozen=True, slots=True)
class Scenario:
    """One rule and the conversation that proves it."""

    id: str
    title: str
    clause: str
    """The rule of the contract, in words; a failure quotes it."""
    section: str
    """The part of the contract's text that it is from, as the text calls it."""
    steps: tuple[Step, ...]
    """What is done for each target and each case: a turn."""
    after: tuple[str, ...] = ()
    """Rules without which this one cannot be tried."""
    needs: tuple[str, ...] = ()
    environment: str = "usual"
    """`usual`: what a login gives a program; `manifest`: exactly what the manifest names."""
    host: str | None = None
    """Which host answers what the plugin asks on its own; None for the usual one of the contract."""
    for_each: str | None = None
    cases: tuple[Mapping[str, Any], ...] = ({},)
    """The steps are carried out once per case, with the case's named values."""
    opening: tuple[Step, ...] | None = None
    """What a process is told before its first turn; it then has turn after turn. None: it has one turn."""
    skip_when: str = "any"
    """The rule counts as untried when `any` or only when `all` of its conversations were."""
    learn: Mapping[str, str] = field(default_factory=dict)
    """Kind of export → where the last line of the conversation describes the exports of that kind."""
    fixture: Fixture | None = None


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
        known = [earlier.id for earlier in scenarios]
        problems = [
            Problem("unknown_axis", "after", f"{name!r} is no axis of an earlier file")
            for name in scenario.after
            if name not in known
        ]
        if scenario.id in known:
            problems.append(Problem("duplicate_id", "id", f"{scenario.id!r} is the id of an earlier file, too"))
        prefix = f"{contract.replace('/', '.')}."
        if not scenario.id.startswith(prefix):
            problems.append(Problem("invalid_value", "id", f"must begin with {prefix!r}"))
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
    opening, opening_problems = _opening(document)
    steps, step_problems = _steps(document)
    problems += [*opening_problems, *step_problems]
    if file is None or problems:
        raise ScenarioInvalid(source, problems)
    return Scenario(
        id=file.id,
        title=file.title,
        clause=file.clause,
        section=file.section,
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
    )


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
    texts = [text for part in templates_of(step) for text in template_problems(part, names, GENERATORS)]
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
