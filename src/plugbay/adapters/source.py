"""`HostedSource`: the host behind an adapter, in the process and on the loop of the adapter.

The host is made and started after the greeting, and a plugin of it with its first call: an adapter greets with its pin.
Sandbox, grants, supervision, records and redaction hold as in every host.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from plugbay.adapters.failures import SourceFailed, translate
from plugbay.adapters.pin import Pin, PinnedExport
from plugbay.host.catalog.approvals import Approval, Approvals, parse_approval
from plugbay.host.config import config as configuration
from plugbay.host.discovery.folders import discover
from plugbay.host.host import Host
from plugbay.host.inbound.questions import Questions
from plugbay.host.request import CallResult
from plugbay.mcp_server.listing import INPUT_ARGUMENT
from plugbay.mcp_server.results import has_content, plain_value, tool_result
from plugbay.model.errors import CallFailed, Code, ConfigInvalid, Failure, Origin, PlugbayError
from plugbay.model.spec import Export
from plugbay.sdk.results import Seed, ToolResult
from plugbay.sdk.screens.command_lines import CliResult

ADAPT_AGAIN = "run plugbay adapt again to pin what the source offers now"

CONTEXT = ("agent_id", "agent_path", "session_id", "project_id", "operator_id", "request_id")
"""Ids of a call that hosts of several contracts send."""

TAKES_CONTEXT = {"kaged": CONTEXT, "nexo": CONTEXT, "vai": ("session_id", "project_id")}
"""The ids that a source takes, by its contract."""


class PinnedApprovals(Approvals):
    """The approvals of a pin, in place of those in a state folder. They never change."""

    def __init__(self, approvals: Mapping[str, Any]) -> None:
        super().__init__(Path("adapter.json"))
        self._pinned = approvals

    def stamp(self, plugin_id: str) -> tuple[int, int, int] | None:
        return (0, 0, 0) if plugin_id in self._pinned else None

    def load(self, plugin_id: str) -> Approval | None:
        kept = self._pinned.get(plugin_id)
        return None if kept is None else parse_approval(Path("adapter.json"), kept)

    def save(self, plugin_id: str, approval: Approval) -> None:
        raise PlugbayError(f"the exports of {plugin_id} are pinned; {ADAPT_AGAIN}")


def make_host(pin: Pin, *, questions: Questions | None = None) -> Host:
    """The host of the pinned sources, not started; raises `PlugbayError`."""
    settings, ids = pin.settings, {source.id for source in pin.sources}
    config = configuration.load(Path(settings.config)) if settings.config else configuration.Config.default()
    servers = {name: server for name, server in config.mcp.items() if name in ids}
    config = config.model_copy(update={"mcp": servers, "broker": None})
    found = discover([Path(path) for path in dict.fromkeys(source.path for source in pin.sources if source.path)])
    there = [item for item in found if item.spec is not None and item.spec.id in ids]
    missing = ids - {item.spec.id for item in there if item.spec} - servers.keys()
    if missing:
        raise PlugbayError(f"{', '.join(sorted(missing))} cannot be found any more; {ADAPT_AGAIN}")
    return Host(
        there,
        config,
        grants=settings.grants,
        grant_all=settings.grant_all,
        unconfined=settings.unconfined,
        eager=False,
        log_dir=settings.logs or None,
        state_dir=settings.state or None,
        approvals=PinnedApprovals(pin.approvals),
        questions=questions,
    )


class HostedSource:
    """Calls the sources of a pin, and keeps their host."""

    def __init__(self, pin: Pin, report: Callable[[str], None]) -> None:
        """`report` tells the other host, in one line, what is wrong with a source."""
        self._pin = pin
        self._report = report
        self._contracts = {source.id: source.contract for source in pin.sources}
        self._starting: asyncio.Future[Host] | None = None
        self._drift: set[str] = set()
        """Changes that were reported."""

    async def start(self) -> None:
        """Start the host if it is not running; a failure is reported, and tried again with the next call."""
        try:
            await self._host()
        except SourceFailed as failed:
            self._report(str(failed))

    async def stop(self) -> None:
        """Stop the host; no process is left."""
        starting, self._starting = self._starting, None
        if starting is not None:
            await asyncio.wait({starting})
            if not starting.cancelled() and starting.exception() is None:
                await starting.result().stop()

    async def call(self, export: PinnedExport, given: Any, ctx: Any) -> Any:
        """The value of a call, as the handlers of the target return it; raises `SourceFailed`."""
        host = await self._host()
        progress = None if ctx is None or export.form != "tool" else _progress(ctx)
        value = given.get(INPUT_ARGUMENT) if export.wraps and isinstance(given, dict) else given
        result = await host.attempt(
            export.full_name,
            value,
            timeout=None if ctx is None else _seconds(ctx),
            context=self._context(export, ctx),
            on_progress=progress,
            kind=export.kind,
        )
        self._check_drift(host, export)
        if result.failure is not None:
            raise SourceFailed(self._translate(host, export, result.failure))
        return self._value(host, export, result)

    async def run(self, export: PinnedExport, argv: Sequence[str], ctx: Any) -> CliResult:
        """The output of a command line; raises `SourceFailed`."""
        host = await self._host()
        try:
            done = await host.run_cli(export.full_name, argv, timeout=_seconds(ctx))
        except CallFailed as error:
            raise SourceFailed(self._translate(host, export, error.failure)) from None
        return CliResult(done.stdout, done.stderr, done.exit_code)

    async def compact(self, export: PinnedExport, messages: Sequence[Any], ctx: Any) -> Any:
        """The messages or blocks that a compactor of the source leaves; raises `SourceFailed`."""
        host = await self._host()
        if self._contracts[export.plugin] == "kaged":
            hook = f"{export.plugin}/pre_compact"
            result = await host.attempt(hook, {"messages": list(messages)}, kind="hook", timeout=_seconds(ctx))
            return self._value_or_raise(host, export, result).get("messages")
        asked = ctx.compaction
        request = {
            "source": {
                "chain_id": asked.chain_id,
                "projection": {"blocks": list(messages), "pinned_items": asked.pinned},
            },
            "target": asked.target,
            "policy": asked.policy,
        }
        result = await host.attempt(export.full_name, request, kind="compactor", timeout=_seconds(ctx))
        seed = self._value_or_raise(host, export, result)
        return Seed(seed["seed_blocks"], (seed.get("summary") or {}).get("text", ""))

    async def stream(self, export: PinnedExport, given: Any) -> AsyncIterator[Any]:
        """The chunks of a model's answer; raises `SourceFailed`."""
        host = await self._host()
        try:
            async with host.stream(export.full_name, given) as stream:
                async for chunk in stream:
                    yield chunk
                whole = stream.result
        except CallFailed as error:
            raise SourceFailed(self._translate(host, export, error.failure)) from None
        yield {"type": "usage", "usage": whole.get("usage") or {}}
        yield {"type": "end", "finish_reason": whole.get("finish_reason")}

    # Details.

    async def _host(self) -> Host:
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start())
        starting = self._starting
        try:
            return await asyncio.shield(starting)
        except (PlugbayError, OSError) as error:
            if self._starting is starting:
                self._starting = None
            text = f"the source cannot be hosted: {_first_line(error)}"
            raise SourceFailed(Failure(Code.UNAVAILABLE, text, origin=Origin.PLUGIN, retryable=True)) from None

    async def _start(self) -> Host:
        host = make_host(self._pin)
        await host.start()
        for plugin_id in self._contracts:
            refusal = host.refusal(plugin_id)
            pending = "" if refusal is None else f"{plugin_id} cannot run: {refusal.message}"
            if text := _changed(host, plugin_id) or pending:
                self._report(text)
        return host

    def _check_drift(self, host: Host, export: PinnedExport) -> None:
        """Report once each difference between the source's offer and the pinned one."""
        for change in host.runtime_exports.drift(export.plugin):
            text = f"{export.plugin} has changed since it was adapted: {change}; {ADAPT_AGAIN}"
            if text not in self._drift:
                self._drift.add(text)
                self._report(text)

    def _translate(self, host: Host, export: PinnedExport, failure: Failure) -> Failure:
        changed = _changed(host, export.plugin)
        if "changed" in failure.detail:  # an export that differs from its approval; here that is the pin
            changed = f"{failure.message}; {ADAPT_AGAIN}"
        if changed:  # hosts of nexo and rune show the message alone
            failure = Failure(Code.CAPABILITY_NOT_ALLOWED, changed, origin=Origin.POLICY)
        return translate(failure, self._contracts[export.plugin], self._pin.target)

    def _context(self, export: PinnedExport, ctx: Any) -> dict[str, str]:
        names = TAKES_CONTEXT.get(self._contracts[export.plugin], ())
        return {} if ctx is None else {name: value for name in names if (value := getattr(ctx, name)) is not None}

    def _value_or_raise(self, host: Host, export: PinnedExport, result: CallResult) -> Any:
        if result.failure is not None:
            raise SourceFailed(self._translate(host, export, result.failure))
        return result.value()

    def _value(self, host: Host, export: PinnedExport, result: CallResult) -> Any:
        if export.form not in ("tool", "method"):
            return result.value()
        entry = host.calls.catalog.resolve(export.full_name, export.kind)
        if isinstance(entry, Failure):  # it was withdrawn while the call ran
            return result.value()
        if self._pin.target == "vai" and has_content(entry.export):
            return _with_content(entry.export, result.output)
        value = plain_value(entry.export, result.output)
        if self._pin.target in ("ainb", "vai") and isinstance(value, msgspec.Raw):
            return msgspec.json.decode(value)  # the SDK looks inside
        return value


def _changed(host: Host, plugin_id: str) -> str:
    """Why the pinned approval of a plugin holds no longer, and what to do; empty when it holds."""
    problem = host.runtime_exports.problems.get(plugin_id)
    return f"{plugin_id} cannot run as it was adapted: {problem}; {ADAPT_AGAIN}" if problem else ""


def _with_content(export: Export, output: Any) -> ToolResult:
    """A result with content for a host of vai."""
    result = tool_result(export, output)
    if not isinstance(result, dict):
        result = msgspec.json.decode(result)
    items = [_vai_item(item) for item in result.get("content") or () if isinstance(item, dict)]
    return ToolResult(items, result.get("structuredContent"), is_error=bool(result.get("isError")))


def _vai_item(item: dict[str, Any]) -> dict[str, Any]:
    """MCP content as vai has it: media with a source, other types as text."""
    if item.get("type") in ("image", "audio") and {"data", "mimeType"} <= item.keys():
        return {"type": item["type"], "source": {"media_type": item["mimeType"], "data": item["data"]}}
    if item.get("type") == "text":
        return {"type": "text", "text": str(item.get("text", ""))}
    return {"type": "text", "text": json.dumps(item, ensure_ascii=False)}


def _progress(ctx: Any) -> Callable[[Any], None]:
    """Passes the progress of the source on; a target without progress ignores it."""

    def report(item: Any) -> None:
        said = msgspec.json.decode(item) if isinstance(item, msgspec.Raw) else item
        if not isinstance(said, dict):
            ctx.progress(str(said))
            return
        more = {name: said[name] for name in ("progress", "total") if said.get(name) is not None}
        text = next((said[name] for name in ("message", "text", "delta") if isinstance(said.get(name), str)), "")
        ctx.progress(text, **more)

    return report


def _seconds(ctx: Any) -> float | None:
    """Seconds for a call: those that the other host leaves, if it has a deadline."""
    remaining = ctx.remaining
    return None if remaining is None else max(remaining, 0.001)


def _first_line(error: Exception) -> str:
    text = str(error) if not isinstance(error, ConfigInvalid) else " ".join(str(error).split())
    return text.partition("\n")[0]
