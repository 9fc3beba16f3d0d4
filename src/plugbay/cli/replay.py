"""`plugbay replay FILE`: replay a recording as the plugin, or as the host with `--as-host`.

As the plugin, stdin and stdout carry the protocol, so all messages go to stderr. `plugbay.conformance` implements
replays.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plugbay.cli import lookup
from plugbay.cli.exit_codes import Exit, refusal
from plugbay.cli.render import output

if TYPE_CHECKING:
    from plugbay.conformance.replay.mock_host import Finding, Outcome
    from plugbay.link.recording import Recording
    from plugbay.model.spec import PluginSpec

HOW_TO_RECORD = "plugbay tap PATH --call EXPORT --record FILE makes a recording"

SHOWN_DIFFERENCES = 8
"""Differences of one frame that are shown."""


def _positive(value: float | None) -> float | None:
    if value is not None and value <= 0:
        raise typer.BadParameter(f"{value:g} is not greater than 0")
    return value


File = Annotated[Path, typer.Argument(metavar="FILE", help="A recording: plugbay tap --record, or Host(record=…).")]
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH|-- CMD…", help="With --as-host: the plugin's folder, or the command to start."),
]
AsHost = Annotated[bool, typer.Option("--as-host", help="Replay the host against a real plugin, and compare.")]
Check = Annotated[bool, typer.Option("--check", help="Only show a summary of the recording.")]
Loose = Annotated[bool, typer.Option("--loose", help="Match requests by method and order, not by content.")]
Redacted = Annotated[
    bool, typer.Option("--allow-redacted", help="Continue at redacted secrets; placeholders are sent.")
]
Speed = Annotated[
    float | None,
    typer.Option(
        metavar="X", callback=_positive, help="1 keeps the recorded times, 2 is twice as fast; no waiting by default."
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(metavar="POINTER", help="A value not to compare, like /result/id or /items/*/id; repeatable."),
]
Seconds = Annotated[
    float | None,
    typer.Option("--timeout", metavar="S", callback=_positive, help="Seconds to wait for a frame; 10 by default."),
]
AsJson = Annotated[bool, typer.Option("--json", help="With --check or --as-host: print JSON on stdout.")]


def replay(
    file: File,
    words: Words = None,
    as_host: AsHost = False,
    check: Check = False,
    loose: Loose = False,
    allow_redacted: Redacted = False,
    speed: Speed = None,
    ignore: Ignore = None,
    timeout: Seconds = None,
    as_json: AsJson = False,
) -> None:
    """Replay a recording as the plugin, or as its host.

    As the plugin, on stdin and stdout, it can be the command of a manifest: it returns recorded results, and an error
    for other requests. With --as-host it exits with 9 when a response of the plugin differs. It stops at a redacted
    secret.
    """
    recording = _read(file)
    if check:
        _show_contents(file, recording, as_json)
    elif as_host:
        _as_host(recording, words or [], Path(file), speed, ignore or [], timeout, allow_redacted, as_json)
    elif as_json or words:
        wrong = "--json" if as_json else "PATH|-- CMD…"
        raise typer.BadParameter("stdout carries the protocol; add --as-host or --check", param_hint=wrong)
    else:
        # Exit at once: some contracts give a plugin half a second to exit, and there is nothing to clean up.
        os._exit(_as_plugin(recording, loose, allow_redacted, speed or 0.0))


def _read(file: Path) -> Recording:
    from plugbay.link import recording

    try:
        with file.open("rb") as lines:
            return recording.read(lines)
    except OSError as error:
        status = Exit.NOT_FOUND if isinstance(error, FileNotFoundError) else Exit.FAILURE
        raise refusal(f"{file}: {error.strerror}", HOW_TO_RECORD, status) from None
    except recording.BadRecording as error:
        raise refusal(f"{file}: {error}", HOW_TO_RECORD, Exit.INVALID) from None


# As the plugin.


def _as_plugin(recording: Recording, loose: bool, allow_redacted: bool, speed: float) -> int:
    from plugbay.conformance.replay.mock_plugin import MockPlugin, serve

    mock = MockPlugin(recording, _to_stderr, loose=loose, allow_redacted=allow_redacted, speed=speed)
    return serve(mock)


def _to_stderr(text: str) -> None:
    if sys.stderr is not None:
        print(output.safe(text), file=sys.stderr, flush=True)


# As the host.


def _as_host(
    recording: Recording,
    words: list[str],
    file: Path,
    speed: float | None,
    ignore: list[str],
    timeout: float | None,
    allow_redacted: bool,
    as_json: bool,
) -> None:
    from plugbay.conformance.engine.plugin_runner import run_in_own_loop
    from plugbay.conformance.replay.exchanges import UnusableFrame
    from plugbay.conformance.replay.mock_host import FRAME_SECONDS, PlayOptions, play

    spec = _plugin(recording, words)
    manner = PlayOptions(timeout or FRAME_SECONDS, speed or 0.0, tuple(ignore), allow_redacted, output.note)
    try:
        outcome = run_in_own_loop(play(recording, spec, manner))
    except UnusableFrame as error:
        raise refusal(f"{file}: {error}", status=Exit.INVALID) from None
    if as_json:
        output.print_json(outcome.to_json())
    else:
        _show_outcome(recording, outcome)
    raise typer.Exit(Exit.FINDINGS if outcome.findings else Exit.OK)


def _plugin(recording: Recording, words: list[str]) -> PluginSpec:
    """The plugin in a folder, or one that a command starts."""
    from plugbay.model.spec import PluginSpec

    contract = recording.header.contract
    if not words:
        raise typer.BadParameter("name the plugin's folder, or a command after --", param_hint="PATH|-- CMD…")
    place = Path(words[0])
    if len(words) > 1 or not lookup.folder_of(place).is_dir():
        command = tuple(words)
        return PluginSpec(recording.header.plugin_id, recording.header.plugin_version, contract, Path.cwd(), command)
    found = lookup.find(place, contract)
    if found.spec is None:
        raise lookup.refusal(found, "replay FILE --as-host")
    if found.spec.contract != contract:
        raise refusal(f"the recording is of a {contract} plugin; {place} speaks {found.spec.contract}")
    return found.spec


def _show_outcome(recording: Recording, outcome: Outcome) -> None:
    page, header = output.out(), recording.header
    for finding in outcome.findings:
        _show_finding(finding)
    counts = f"{output.count(outcome.sent, 'frame')} sent, {outcome.compared} compared"
    talks = output.count(outcome.conversations, "conversation")
    mark = (output.BAD, output.BAD_STYLE) if outcome.findings else (output.OK, output.GOOD_STYLE)
    verdict = output.count(len(outcome.findings), "difference") if outcome.findings else "matches the recording"
    page.line(
        mark,
        " ",
        (output.name_with_version(header.plugin_id, header.plugin_version), output.NAME),
        f" {verdict}",
        output.DOT,
        talks,
    )
    page.line((counts, output.DIM), indent=2)
    places = [each.path for finding in outcome.findings for each in finding.differences if each.path]
    if places:
        output.err().field(
            "hint:",
            f"--ignore {places[0]} leaves out a value that changes every time",
            indent=0,
            width=output.MARGIN,
            label_style=output.CODE,
        )


def _show_finding(finding: Finding) -> None:
    page = output.out()
    page.line((output.BAD, output.BAD_STYLE), " ", (f"line {finding.line}: ", output.DIM), finding.what)
    for each in finding.differences[:SHOWN_DIFFERENCES]:
        page.line((each.path or "/", output.CODE), indent=4)
        if each.gone is not None:
            page.line((f"- {each.gone}", output.BAD_STYLE), indent=6)
        if each.new is not None:
            page.line((f"+ {each.new}", output.GOOD_STYLE), indent=6)
    if len(finding.differences) > SHOWN_DIFFERENCES:
        page.line((f"… and {len(finding.differences) - SHOWN_DIFFERENCES} more", output.DIM), indent=4)


# Contents of a recording.


def _show_contents(file: Path, recording: Recording, as_json: bool) -> None:
    from plugbay.conformance.replay.summary import summarize

    held = summarize(recording)
    if as_json:
        output.print_json(held.to_json())
        return
    page, header = output.out(), recording.header
    page.line(
        (output.name_with_version(header.plugin_id, header.plugin_version), output.NAME),
        f"{output.DOT}{header.contract}",
    )
    page.field("recorded", f"{header.began_at}, {output.duration(held.seconds * 1000)}")
    page.field("holds", f"{output.count(held.conversations, 'conversation')}, {output.count(held.frames, 'frame')}")
    for request in held.questions:
        times = f"{request.count} times" if request.count > 1 else "once"
        took = "" if request.milliseconds is None else f", {output.duration(request.milliseconds)}"
        failed = f", {output.count(request.failed, 'error')}" if request.failed else ""
        page.field(request.asker, (request.name, output.CODE), (f"  {times}{took}{failed}", output.DIM))
    for place in held.missing:
        page.field("missing", (place, output.WARN_STYLE))
    if recording.end is None:
        page.field("end", ("incomplete: the host was killed, or is still running", output.WARN_STYLE))
