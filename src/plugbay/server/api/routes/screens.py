"""Routes of the screens and command lines of the operator's plugins: list, render, run.

A render takes the keys to press before it, so one request is one look at a screen, and no state is kept between two.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from plugbay.host.calls.calls import LONGEST_CALL
from plugbay.model.errors import CallFailed
from plugbay.server.api.caller import TheGateway, needs
from plugbay.server.api.idempotency import Router, long_running
from plugbay.server.api.models import Answer, Body
from plugbay.server.domain.principal import HOST

router = Router(tags=["host"])

MAX_KEYS = 64
"""Keys of one render: as many as wait for a plugin."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=500)]
TimeoutMs = Annotated[int | None, Field(ge=1, le=round(LONGEST_CALL * 1000))]
Cells = Annotated[int, Field(ge=1, le=0xFFFF)]


class ScreenOut(Answer):
    name: str = Field(description="`plugin/screen`.")
    plugin: str
    screen: str


class ScreensOut(Answer):
    screens: list[ScreenOut]


class KeyIn(Body):
    """A key event of the ainb contract."""

    code: dict[Annotated[str, StringConstraints(max_length=10)], Annotated[str, StringConstraints(max_length=20)] | int]
    mods: int = Field(default=0, ge=0, le=255)
    kind: Literal["press", "repeat", "release"] = "press"


class RenderIn(Body):
    screen: Name
    width: Cells = 80
    height: Cells = 24
    keys: list[KeyIn] = Field(default_factory=list, max_length=MAX_KEYS, description="Keys to press first.")
    timeout_ms: TimeoutMs = None


class RenderOut(Answer):
    frame: dict[str, Any] | None = Field(description="As in `plugbay render --json`.")
    failure: dict[str, Any] | None


class CommandLineIn(Body):
    namespace: Name
    argv: list[Annotated[str, StringConstraints(max_length=100_000)]] = Field(default_factory=list, max_length=1000)
    timeout_ms: TimeoutMs = None


class CommandLineOut(Answer):
    stdout: str = Field(description="Base64.")
    stderr: str = Field(description="Base64.")
    exit_code: int | None = Field(description="Null if it did not exit by itself; `failure` says why.")
    failure: dict[str, Any] | None


@router.get("/api/v1/screens", **needs(HOST))
async def list_host_screens(gateway: TheGateway) -> ScreensOut:
    """Every screen of the host's plugins."""
    screens = [
        ScreenOut(name=each.name, plugin=each.plugin_id, screen=each.screen) for each in gateway.host.screens.all()
    ]
    return ScreensOut(screens=screens)


@router.post("/api/v1/screens:render", **needs(HOST))
@long_running
async def render_host_screen(body: RenderIn, gateway: TheGateway) -> RenderOut:
    """Press keys, then render a screen until it settles. The answer contains the failure of a plugin too."""
    keys = [key.model_dump() for key in body.keys]
    try:
        frame = await gateway.host.screens.draw(body.screen, body.width, body.height, keys, _seconds(body.timeout_ms))
    except CallFailed as error:
        return RenderOut(frame=None, failure=_failure(error))
    return RenderOut(frame=frame.to_json(), failure=None)


@router.post("/api/v1/command-lines:run", **needs(HOST))
@long_running
async def run_host_command_line(body: CommandLineIn, gateway: TheGateway) -> CommandLineOut:
    """Run a command line of a plugin. The answer contains the failure of a plugin too."""
    try:
        done = await gateway.host.run_cli(body.namespace, body.argv, timeout=_seconds(body.timeout_ms))
    except CallFailed as error:
        return CommandLineOut(stdout="", stderr="", exit_code=None, failure=_failure(error))
    stdout, stderr = (b64encode(data).decode() for data in (done.stdout, done.stderr))
    return CommandLineOut(stdout=stdout, stderr=stderr, exit_code=done.exit_code, failure=None)


def _seconds(timeout_ms: int | None) -> float | None:
    return None if timeout_ms is None else timeout_ms / 1000


def _failure(error: CallFailed) -> dict[str, Any]:
    return {**error.failure.to_json(), "plugin": error.failure.plugin}
