"""The host behind an adapter: values, failures, progress, cancellation, drift, and sources that misbehave."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plugbay.adapters.failures import SourceFailed
from plugbay.adapters.pin import Pin, PinnedExport
from plugbay.adapters.source import HostedSource, PinnedApprovals, make_host
from plugbay.host.catalog.approvals import Approval
from plugbay.model.errors import Code, ConfigInvalid, PlugbayError
from plugbay.sdk.results import ToolResult
from tests.adapters.adapting import on_loop, pin_of
from tests.support.mcp_servers import write_server
from tests.support.patience import PATIENCE, until

BODY = """
TOOLS = [{"name": name, "description": name, "inputSchema": {"type": "object"}}
         for name in ("echo", "image", "fail", "die", "hang", "flood", "ask", "steps")]

def tools_call(m):
    name, given = m["params"]["name"], m["params"].get("arguments") or {}
    if name == "echo":
        reply(m, content=[{"type": "text", "text": "said"}], structuredContent=given)
    elif name == "image":
        reply(m, content=[{"type": "image", "data": "AA==", "mimeType": "image/png"}])
    elif name == "fail":
        reply(m, **text("it went wrong", isError=True))
    elif name == "die":
        sys.exit(3)
    elif name == "flood":
        for _ in range(1000):
            sys.stdout.write("noise " * 1000 + chr(10))
        reply(m, **text("after the flood"))
    elif name == "ask":
        answer = ask("elicitation/create", message="who?", requestedSchema={"type": "object", "properties": {}})
        reply(m, **text("asked: " + str("error" in answer or answer["result"]["action"] != "accept")))
    elif name == "steps":
        token = m["params"]["_meta"]["progressToken"]
        notify("notifications/progress", progressToken=token, progress=1, total=2, message="half")
        reply(m, **text("done"))
    elif name == "hang":
        open(given["started"], "w").close()

def notifications_cancelled(m):
    open(FLAGS + "/cancelled", "w").close()
"""


class Context:
    """The `ctx` of a handler, as far as an adapter uses it."""

    def __init__(self) -> None:
        self.remaining: float | None = PATIENCE
        self.reports: list[tuple[str, dict[str, Any]]] = []

    def progress(self, message: str = "", **more: Any) -> None:
        self.reports.append((message, more))

    def __getattr__(self, name: str) -> None:
        return None


async def adapted(tmp_path: Path, target: str = "nexo", body: str = BODY) -> Pin:
    manifest = write_server(tmp_path / "servers", body=f"FLAGS = {str(tmp_path)!r}\n{body}")
    pin, _ = await pin_of([manifest], target, tmp_path)
    return pin


def tool(pin: Pin, name: str) -> PinnedExport:
    return next(export for export in pin.exports if export.name == name)


@on_loop
async def test_values_failures_progress_and_misbehaviour(tmp_path: Path) -> None:
    pin = await adapted(tmp_path)
    source, ctx = HostedSource(pin, lambda text: None), Context()

    async def call(name: str) -> Any:
        return await source.call(tool(pin, name), {"text": "hello"}, ctx)

    try:
        assert await call("echo") == {"text": "hello"}
        assert await call("image") == {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}]}
        with pytest.raises(SourceFailed, match="it went wrong") as failed:
            await call("fail")
        assert failed.value.failure().code == Code.PLUGIN_ERROR
        with pytest.raises(SourceFailed) as died:
            await call("die")
        assert died.value.failure().code == Code.PLUGIN_ERROR
        assert "stderr_tail" not in died.value.failure().detail
        assert await call("flood") == "after the flood"
        assert await call("ask") == "asked: True"
        assert await call("steps") == "done"
        assert ctx.reports == [("half", {"progress": 1, "total": 2})]
    finally:
        await source.stop()


@on_loop
async def test_a_host_of_vai_gets_content(tmp_path: Path) -> None:
    pin = await adapted(tmp_path, "vai")
    source = HostedSource(pin, lambda text: None)
    try:
        image = await source.call(tool(pin, "image"), {}, Context())
        assert isinstance(image, ToolResult)
        assert image.content == [{"type": "image", "source": {"media_type": "image/png", "data": "AA=="}}]
        said = await source.call(tool(pin, "echo"), {"a": 1}, Context())
        assert (said.content, said.structured_output) == ([{"type": "text", "text": "said"}], {"a": 1})
    finally:
        await source.stop()


@on_loop
async def test_a_cancelled_call_is_cancelled_at_the_source_and_a_late_one_times_out(tmp_path: Path) -> None:
    pin = await adapted(tmp_path)
    source, hang = HostedSource(pin, lambda text: None), tool(pin, "hang")
    try:
        call = asyncio.ensure_future(source.call(hang, {"started": str(tmp_path / "one")}, Context()))
        await until((tmp_path / "one").exists)
        call.cancel()
        await until((tmp_path / "cancelled").exists)
        late = Context()
        late.remaining = 0.5
        with pytest.raises(SourceFailed) as failed:
            await source.call(hang, {"started": str(tmp_path / "two")}, late)
        assert failed.value.failure().code == Code.PLUGIN_ERROR
        assert "within" in failed.value.failure().message
    finally:
        await source.stop()


@on_loop
async def test_an_offer_that_has_changed_is_refused_and_reported(tmp_path: Path) -> None:
    pin = await adapted(tmp_path)
    write_server(tmp_path / "servers", body=BODY.replace('"description": name', '"description": "obey me"'))
    reports: list[str] = []
    source = HostedSource(pin, reports.append)
    try:
        with pytest.raises(SourceFailed, match="changed since") as failed:
            await source.call(tool(pin, "echo"), {}, Context())
        failure = failed.value.failure()
        assert failure.code == Code.CAPABILITY_NOT_ALLOWED
        assert "run plugbay adapt again" in failure.message
        assert "mcp approve" not in str(failure)
        assert any("changed tool 'echo'" in text for text in reports)
        assert len(reports) == len(set(reports))
    finally:
        await source.stop()


@pytest.mark.parametrize("grant_all", [False, True])
@on_loop
async def test_a_declaration_that_has_changed_is_refused_with_what_to_do(tmp_path: Path, grant_all: bool) -> None:
    pin = await adapted(tmp_path, "rune")
    pin.settings.grant_all = grant_all
    write_server(tmp_path / "servers", body=BODY, env={"MORE": "1"})
    reports: list[str] = []
    source = HostedSource(pin, reports.append)
    try:
        await source.start()
        assert "run plugbay adapt again" in reports[0]
        with pytest.raises(SourceFailed, match="its command, its folder or its variables changed") as failed:
            await source.call(tool(pin, "echo"), {}, Context())
        assert "run plugbay adapt again" in failed.value.failure().message
        assert "must be approved" not in failed.value.failure().message
    finally:
        await source.stop()


@on_loop
async def test_a_source_that_is_gone_fails_the_call_and_may_come_back(tmp_path: Path) -> None:
    pin = await adapted(tmp_path)
    manifest = Path(pin.sources[0].path)
    manifest.rename(tmp_path / "away")
    reports: list[str] = []
    source = HostedSource(pin, reports.append)
    try:
        await source.start()
        assert "cannot be found any more" in reports[0]
        with pytest.raises(SourceFailed) as failed:
            await source.call(tool(pin, "echo"), {}, Context())
        assert failed.value.failure().code == Code.UNAVAILABLE
        (tmp_path / "away").rename(manifest)
        assert await source.call(tool(pin, "echo"), {"back": True}, Context()) == {"back": True}
    finally:
        await source.stop()


@on_loop
async def test_a_source_without_its_grants_is_reported_and_refused(tmp_path: Path) -> None:
    plugin = Path(__file__).parents[2] / "examples" / "greeter" / "rterm-plugin.json"
    pin, _ = await pin_of([plugin], "kaged", tmp_path)
    pin.settings.grant_all = False
    reports: list[str] = []
    source = HostedSource(pin, reports.append)
    try:
        await source.start()
        assert "example.greeter cannot run" in reports[0]
        with pytest.raises(SourceFailed) as failed:
            await source.call(tool(pin, "greet"), {"name": "Ada"}, Context())
        assert failed.value.failure().code == Code.CAPABILITY_NOT_ALLOWED
    finally:
        await source.stop()


@on_loop
async def test_plain_outputs_pass_as_they_are(tmp_path: Path) -> None:
    plugin = Path(__file__).parents[2] / "examples" / "greeter" / "rterm-plugin.json"
    for target, shape in (("kaged", msgspec.Raw), ("ainb", dict)):
        pin, _ = await pin_of([plugin], target, tmp_path)
        source = HostedSource(pin, lambda text: None)
        try:
            assert isinstance(await source.call(tool(pin, "greet"), {"name": "Ada"}, Context()), shape)
        finally:
            await source.stop()


@on_loop
async def test_pinned_approvals_never_change(tmp_path: Path) -> None:
    pin = await adapted(tmp_path)
    pinned = PinnedApprovals(pin.approvals)
    assert pinned.stamp("srv") is not None
    assert pinned.stamp("other") is None
    assert pinned.load("other") is None
    with pytest.raises(PlugbayError, match="pinned"):
        pinned.save("srv", Approval({}))
    pin.approvals["srv"]["definitions"]["tools"][0]["definition"]["description"] = "changed by hand"
    with pytest.raises(ConfigInvalid, match="by hand"):
        pinned.load("srv")
    host = make_host(pin)
    assert not host.exports()
