"""Runs bad plugins against any host and compares what the host did with what the contract requires.

The host under test comes in through `HostPort`.

    report = await run_catalog(MyPort(), load_catalog("rune"), tmp)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from plugbay.conformance.bad_plugins.catalogue import FOLDER, Entry, Expected, Situation, load_catalog, prepare
from plugbay.conformance.engine.patterns import format_value, is_equal, match
from plugbay.conformance.reports.report import AxisResult, OnAxis, Report, Status
from plugbay.model.errors import Code

__all__ = ["Entry", "Expected", "Situation", "load_catalog", "prepare"]

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
"""The nine codes with which a host judges a plugin process."""

CALL_SECONDS = 60.0
"""Seconds for one call; a host that takes longer fails the entry."""


class Observed(msgspec.Struct, frozen=True):
    """The outcome of a call as its caller saw it. `code` is None when there was a result."""

    code: str | None
    output: Any = None
    message: str = ""
    left_running: tuple[str, ...] = msgspec.field(default=())
    """Processes that were left running, if the port can tell."""
    failure: Mapping[str, Any] | None = None
    """The failure in its public form. Only `ResidentPort.visit` fills in this and the following fields."""
    chunks: tuple[Any, ...] = ()
    published: tuple[Any, ...] = ()
    """Events of the plugin that reached the bus, in their public form."""
    counts: Mapping[str, int] = msgspec.field(default_factory=dict)
    next: str = ""
    """`same`, `new` or `refused`; empty when no second call was made."""
    parting: str = ""
    """`ok` or a failure code."""


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
    """A host for which the test can also create situations that a plain call cannot."""

    async def call_in(
        self,
        situation: Situation,
        folder: Path,
        tool: str,
        *,
        grants: Sequence[str],
        timeouts: Mapping[str, float],
    ) -> Observed: ...


@runtime_checkable
class ResidentPort(HostPort, Protocol):
    """A host of resident plugins: it can report more than the outcome of a call."""

    async def visit(self, folder: Path, entry: Entry) -> Observed:
        """Host the plugin in `folder`, do what the entry says, call again if the entry expects something of that, stop.

        Counters and the bus are polled until they show what the entry expects.
        """


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
        status, detail = await _try(port, entry, prepare(entry, tmp, FOLDER / contract))
        axis_id = f"{contract}.host.{entry.row}.{entry.name}"
        axes.append(AxisResult(axis_id, entry.what, status, detail, time.monotonic() - began))
        if on_axis is not None:
            on_axis(axes[-1])
    return Report(contract, tuple(axes))


async def _try(port: HostPort, entry: Entry, root: Path) -> tuple[Status, str]:
    if entry.situation is not None and not isinstance(port, SituationPort):
        return Status.SKIPPED, f"the port cannot bring about {entry.situation}"
    if entry.needs_visit and not isinstance(port, ResidentPort):
        return Status.SKIPPED, "the port cannot look at a plugin that stays"
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
    if entry.needs_visit:
        assert isinstance(port, ResidentPort)
        return await port.visit(root, entry)
    return await port.call(root, entry.tool, entry.given(), grants=entry.grants, timeouts=entry.timeouts)


def verdict(expected: Expected, observed: Observed) -> str:
    """Describe how the observation differs from the expectation; empty when it does not."""
    got = observed.code or f"succeeded with {format_value(observed.output)}"
    words = f"expected {expected}, got {got}" + (f": {observed.message}" if observed.message else "")
    if not _as_expected(expected, observed):
        return words
    differences = _differences(expected, observed)
    if differences:
        return f"{expected}, as expected, but {'; '.join(differences)}"
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
    fits = not expected.says_output or is_equal(expected.output, observed.output)
    return observed.code is None and fits


def _differences(expected: Expected, observed: Observed) -> list[str]:
    """List differences in everything except the outcome of the call."""
    parts = [
        ("its failure", expected.failure, observed.failure),
        ("its pieces", expected.chunks, list(observed.chunks)),
        ("what it published", expected.published, list(observed.published)),
        ("the next call", expected.next, observed.next),
        ("its leaving", expected.parting, observed.parting),
    ]
    found = [
        f"{name} differs: {miss}"
        for name, pattern, value in parts
        if pattern is not None
        for miss in match(pattern, value)
    ]
    return found + [
        f"{name} was counted {observed.counts.get(name, 0)} times, not {least} or more"
        for name, least in expected.counts.items()
        if observed.counts.get(name, 0) < least
    ]
