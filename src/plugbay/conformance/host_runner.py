"""Any host against plugins that misbehave on purpose.

Owns the catalogue of bad plugins (`badplugins/<contract>/catalog.json`), the folder that is made of an entry,
and the comparison of what a host observed with what the contract says. Refuses to know a host: the one under
test comes in through `HostPort`.

    report = await run_catalog(MyPort(), load_catalog("rune"), tmp)
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, model_validator

from plugbay.conformance.matchers import same, shown
from plugbay.conformance.report import AxisResult, OnAxis, Report, Status
from plugbay.conformance.template import fill, template_problems, text
from plugbay.contracts.rune.manifest import FILE_NAME
from plugbay.contracts.rune.messages import PROTOCOL
from plugbay.model.errors import CODES, Code

FOLDER = Path(__file__).parent / "badplugins"

VERDICTS = frozenset(
    {
        Code.LAUNCH_FAILED,
        Code.HANDSHAKE_FAILED,
        Code.TIMEOUT,
        Code.CRASHED,
        Code.MALFORMED_RESPONSE,
        Code.TOOL_NOT_EXPOSED,
        Code.PROTOCOL_VERSION_MISMATCH,
        Code.CAPABILITY_NOT_DECLARED,
        Code.CAPABILITY_NOT_ALLOWED,
    }
)
"""The nine codes with which a rune host judges a plugin process."""

Situation = Literal["slow_spawn", "caller_cancels", "input_not_json"]
"""What a call alone cannot bring about:

slow_spawn        starting the process takes longer than the launch timeout
caller_cancels    the caller gives up once the plugin has made the file `reached` in its folder
input_not_json    the caller's input is something that JSON cannot say
"""

TIMEOUTS = frozenset({"launch", "handshake", "call", "teardown"})

INTERPRETERS: dict[str, tuple[str, ...]] = {".sh": ("/bin/sh",), ".py": ("python3", "-I", "-S")}
"""A bad plugin is handed to its interpreter, so that starting it needs no permission and no copy is busy."""

CALL_SECONDS = 60.0
"""After which a host that does not come back has failed the entry."""


class Expected(BaseModel):
    """How the call must end: with a code, or in one of three other ways."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    code: str | None = None
    outcome: Literal["succeeded", "plugin_error", "refused"] | None = None
    """refused: an error that blames no plugin process, so none of the nine codes."""
    output: Any = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Expected:
        if (self.code is None) == (self.outcome is None):
            raise ValueError("give either code or outcome")
        if self.code is not None and self.code not in CODES:
            raise ValueError(f"{self.code!r} is not a failure code")
        return self

    def __str__(self) -> str:
        output = f" with {shown(self.output)}" if self.says_output else ""
        return f"{self.code or self.outcome}{output}"

    @property
    def says_output(self) -> bool:
        return "output" in self.model_fields_set


class Entry(BaseModel):
    """One bad plugin, how it is called, and how that must end."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    file: str | None
    """In the catalogue's folder; None when there is nothing to run."""
    row: str
    """Which rule it is about: `5.13` is row 13 of the table of situations, `6.2` is about capabilities."""
    what: str
    """What the plugin does wrong."""
    expect: Expected
    executable: bool = False
    situation: Situation | None = None
    timeouts: dict[str, float] = {}
    grants: list[str] = []
    manifest: dict[str, Any] = {}
    """Laid over the manifest that `prepare` writes; `process` is laid over field by field."""
    tool: str = "bad.tool"
    input: Any = {}

    @model_validator(mode="after")
    def _can_be_used(self) -> Entry:
        problems = template_problems(self.input, (), ("text",))
        problems += [f"there is no timeout called {name!r}" for name in self.timeouts if name not in TIMEOUTS]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def plugin_id(self) -> str:
        return str(self.manifest.get("plugin_id", "bad.plugin"))

    def given(self) -> Any:
        """The input, made large where it says so."""
        return fill(self.input, {}, {"text": text})


@dataclass(frozen=True, slots=True)
class Observed:
    """How a call ended as the host's caller saw it. `code` is None when there was a result."""

    code: str | None
    output: Any = None
    message: str = ""
    left_running: tuple[str, ...] = field(default=())
    """What was still there after the call, if the port can tell."""


class HostPort(Protocol):
    """A host under test."""

    async def call(
        self, folder: Path, tool: str, input: Any, *, grants: Sequence[str], timeouts: Mapping[str, float]
    ) -> Observed:
        """Host the plugin in `folder`, grant it exactly `grants`, call one tool.

        `timeouts` overrides the defaults of the contract. The plugin's own error is observed as the code
        `plugin_error`. A call of something the host does not have, or a plugin that it will not load, is
        observed as any code that is not one of the nine.
        """


@runtime_checkable
class SituationPort(HostPort, Protocol):
    """A host that can also be brought into the situations a call alone cannot bring about."""

    async def call_in(
        self,
        situation: Situation,
        folder: Path,
        tool: str,
        *,
        grants: Sequence[str],
        timeouts: Mapping[str, float],
    ) -> Observed: ...


def load_catalog(contract: str, folder: Path = FOLDER) -> list[Entry]:
    """Every entry of a contract's catalogue; raises pydantic's ValidationError for a broken one."""
    entries = json.loads((folder / contract / "catalog.json").read_text("utf-8"))
    return [Entry.model_validate(entry) for entry in entries]


def prepare(entry: Entry, tmp: Path, folder: Path = FOLDER / "rune") -> Path:
    """A folder with the plugin of this entry and a manifest that is correct but for what the entry says."""
    root = tmp / entry.name
    root.mkdir(parents=True)
    if entry.file is not None:
        target = root / entry.file
        shutil.copyfile(folder / entry.file, target)
        target.chmod(0o755 if entry.executable else 0o644)
    (root / FILE_NAME).write_text(json.dumps(_manifest(entry), indent=2), "utf-8")
    return root


def _manifest(entry: Entry) -> dict[str, Any]:
    given = entry.manifest
    tools = [tool if isinstance(tool, dict) else {"name": tool} for tool in given.get("tools", ["bad.tool"])]
    return {
        "plugin_id": "bad.plugin",
        "plugin_version": "1.0.0",
        "protocol_version": PROTOCOL,
        **{key: value for key, value in given.items() if key not in ("process", "tools")},
        "process": {**_process(entry.file), **given.get("process", {})},
        "tools": tools,
    }


def _process(file: str | None) -> dict[str, Any]:
    if file is None:
        return {"command": "plugbay-nothing-to-run", "args": []}
    command, *args = *INTERPRETERS.get(Path(file).suffix, ()), file
    return {"command": command, "args": args}


async def run_catalog(
    port: HostPort,
    entries: Iterable[Entry],
    tmp: Path,
    *,
    contract: str = "rune",
    on_axis: OnAxis | None = None,
) -> Report:
    """Call every plugin of the catalogue through `port` and compare."""
    axes: list[AxisResult] = []
    for entry in entries:
        began = time.monotonic()
        status, detail = await _try(port, entry, prepare(entry, tmp))
        axis_id = f"{contract}.host.{entry.row}.{entry.name}"
        axes.append(AxisResult(axis_id, entry.what, status, detail, time.monotonic() - began))
        if on_axis is not None:
            on_axis(axes[-1])
    return Report(contract, tuple(axes))


async def _try(port: HostPort, entry: Entry, root: Path) -> tuple[Status, str]:
    if entry.situation is not None and not isinstance(port, SituationPort):
        return Status.SKIPPED, f"the port cannot bring about {entry.situation}"
    try:
        async with asyncio.timeout(CALL_SECONDS):
            observed = await observe(port, entry, root)
    except TimeoutError:
        return Status.FAILED, f"the host did not come back within {CALL_SECONDS:g} s"
    problem = verdict(entry.expect, observed)
    return (Status.FAILED, problem) if problem else (Status.PASSED, "")


async def observe(port: HostPort, entry: Entry, root: Path) -> Observed:
    """Call the plugin of one entry, in its situation."""
    if entry.situation is not None:
        assert isinstance(port, SituationPort)
        return await port.call_in(entry.situation, root, entry.tool, grants=entry.grants, timeouts=entry.timeouts)
    return await port.call(root, entry.tool, entry.given(), grants=entry.grants, timeouts=entry.timeouts)


def verdict(expected: Expected, observed: Observed) -> str:
    """What is wrong with what was observed; empty when nothing is."""
    got = observed.code or f"succeeded with {shown(observed.output)}"
    words = f"expected {expected}, got {got}" + (f": {observed.message}" if observed.message else "")
    if not _as_expected(expected, observed):
        return words
    if observed.left_running:
        return f"{expected}, as expected, but left running: {', '.join(observed.left_running)}"
    return ""


def _as_expected(expected: Expected, observed: Observed) -> bool:
    if expected.code is not None:
        return observed.code == expected.code
    if expected.outcome == "refused":
        return observed.code is not None and observed.code not in VERDICTS
    if expected.outcome == "plugin_error":
        return observed.code == Code.PLUGIN_ERROR
    fits = not expected.says_output or same(expected.output, observed.output)
    return observed.code is None and fits
