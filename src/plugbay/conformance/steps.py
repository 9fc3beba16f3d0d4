"""The steps of a scenario: what can be done to a plugin and what can be expected of it, as data.

Owns the shape of each step. Refuses to know how one is carried out (`conversation`) and which of them make a rule
(`scenario`). What is sent is a `template`, what is expected a pattern of `matchers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidatorFunctionWrapHandler, WrapValidator

Seconds = Annotated[float, Field(gt=0, le=30, strict=False)]
"""No scenario waits longer than this for one thing; a run has to stay a coffee's length."""

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
    """Write this very text, or the text of a named value; no newline is added."""

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

    A moment after the line `until`, nobody waits any more.
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
    """The line that was looked at last must match this, too."""

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
    """Nothing may be written for so many seconds, or until the output ends."""

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
    """Say good-bye: no more input will come."""

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


def verb_of(step: Step) -> str:
    return next(verb for verb, kind in STEPS.items() if type(step) is kind)


def templates_of(step: Step) -> list[Any]:
    """What a step sends."""
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
            return [step.tour]
        case Settle():
            return [step.settle]
    return []


def patterns_of(step: Step) -> list[Any]:
    """What a step expects."""
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


def good_bye_of(steps: Sequence[Step]) -> Step | None:
    """The step after which the process may leave while somebody wants to see what it leaves behind."""
    if not any(isinstance(step, ExpectNoOrphans) for step in steps):
        return None
    return next((step for step in reversed(steps) if isinstance(step, Send)), None)
