"""Routes of the screens and command lines of the operator's plugins: list, render, input, actions, run.

A render takes the keys to press before it, so one request is one look at a screen. A viewer that stays renders without
`settle`, sends input, and reads the list to learn that its frame is out of date; no state is kept for it.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field, StringConstraints, field_validator, model_validator

from plugbay.host.calls.calls import LONGEST_CALL
from plugbay.host.screens.screens import Screen, Screens
from plugbay.model.errors import CallFailed
from plugbay.server.api.caller import TheGateway, needs
from plugbay.server.api.idempotency import Router, long_running
from plugbay.server.api.models import Answer, Body, example
from plugbay.server.domain.principal import HOST

router = Router(tags=["host"])

MAX_KEYS = 64
"""Keys of one render and events of one input: as many as wait for a plugin."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=500)]
TimeoutMs = Annotated[int | None, Field(ge=1, le=round(LONGEST_CALL * 1000))]
Cells = Annotated[int, Field(ge=1, le=0xFFFF)]
Place = Annotated[int, Field(ge=0, le=0xFFFF)]
Modifiers = Annotated[int, Field(ge=0, le=255)]


class ScreenOut(Answer):
    name: str = Field(description="`plugin/screen`.")
    plugin: str
    screen: str
    revision: int = Field(description="Changes when input, an event or a new process may have changed the picture.")
    dirty: bool = Field(description="Whether the last frame is out of date, or there is none.")
    wedged: bool = Field(description="Whether a render timed out, and the plugin has not answered since.")


class ScreensOut(Answer):
    screens: list[ScreenOut]


class KeyIn(Body):
    """A key event of the ainb contract."""

    code: dict[
        Annotated[str, StringConstraints(max_length=10)],
        Annotated[str, StringConstraints(max_length=20)] | Annotated[int, Field(ge=0, le=255)],
    ] = Field(max_length=4)
    mods: Modifiers = 0
    kind: Literal["press", "repeat", "release"] = "press"

    @field_validator("code")
    @classmethod
    def _check_code(cls, code: dict[str, str | int]) -> dict[str, str | int]:
        kind = code.get("type")
        if not isinstance(kind, str):
            raise ValueError("a key code has a type, for example enter")
        if kind == "char" and not (isinstance(code.get("ch"), str) and len(str(code["ch"])) == 1):
            raise ValueError("a char has one character in ch")
        if kind == "f" and not isinstance(code.get("n"), int):
            raise ValueError("a function key has its number in n")
        return code


class ButtonIn(Body):
    type: Literal["left", "middle", "right"]


class MouseKindIn(Body):
    type: Literal["down", "up", "drag", "moved", "scroll_up", "scroll_down", "scroll_left", "scroll_right"]
    button: ButtonIn | None = None

    @model_validator(mode="after")
    def _check_button(self) -> MouseKindIn:
        if (self.type in ("down", "up", "drag")) != (self.button is not None):
            raise ValueError("down, up and drag have a button, others have none")
        return self


class MouseIn(Body):
    """A mouse event of the ainb contract."""

    kind: MouseKindIn
    col: Place
    row: Place
    mods: Modifiers = 0


class InputEventIn(Body):
    """A key or a mouse event."""

    key: KeyIn | None = None
    mouse: MouseIn | None = None

    @model_validator(mode="after")
    def _check_one(self) -> InputEventIn:
        if (self.key is None) == (self.mouse is None):
            raise ValueError("an event is either a key or a mouse event")
        return self


class InputIn(Body):
    model_config = example(screen="board/main", events=[{"key": {"code": {"type": "char", "ch": "q"}}}])

    screen: Name
    events: list[InputEventIn] = Field(min_length=1, max_length=MAX_KEYS, description="In the order to deliver them.")


class InputOut(Answer):
    delivered: int = Field(description="Number of events that were sent to the plugin; others are lost.")
    screen: ScreenOut | None
    failure: dict[str, Any] | None


class ActionIn(Body):
    model_config = example(plugin="board", action="open")

    plugin: Name
    action: Name


class ActionOut(Answer):
    delivered: bool = Field(description="False: the plugin does not run.")


class RenderIn(Body):
    model_config = example(screen="board/main", width=80, height=24, keys=[{"code": {"type": "enter"}}])

    screen: Name
    width: Cells = 80
    height: Cells = 24
    keys: list[KeyIn] = Field(default_factory=list, max_length=MAX_KEYS, description="Keys to press first.")
    settle: bool = Field(default=True, description="Render until the plugin requests no redraw; false: once.")
    timeout_ms: TimeoutMs = None


class RenderOut(Answer):
    frame: dict[str, Any] | None = Field(description="As in `plugbay render --json`.")
    failure: dict[str, Any] | None
    screen: ScreenOut | None = Field(description="The screen after the render; its `revision` is that of the frame.")


class CommandLineIn(Body):
    model_config = example(namespace="board", argv=["list"])

    namespace: Name
    argv: list[Annotated[str, StringConstraints(max_length=100_000)]] = Field(default_factory=list, max_length=1000)
    timeout_ms: TimeoutMs = None


class CommandLineOut(Answer):
    stdout: str = Field(description="Base64.")
    stderr: str = Field(description="Base64.")
    exit_code: int | None = Field(description="Null if it did not exit by itself; `failure` says why.")
    failure: dict[str, Any] | None


@router.get("/api/v1/screens", **needs(HOST))
async def list_host_screens(
    gateway: TheGateway,
    shown: Annotated[
        str | None, Query(max_length=500, description="The screen that the caller shows: its plugin is not idle.")
    ] = None,
) -> ScreensOut:
    """Every screen of the host's plugins, and whether its last frame is out of date."""
    screens = gateway.host.screens
    return ScreensOut(screens=[_screen_out(screens, each, shown=each.name == shown) for each in screens.all()])


@router.post("/api/v1/screens:render", **needs(HOST))
@long_running
async def render_host_screen(body: RenderIn, gateway: TheGateway) -> RenderOut:
    """Press keys, then render a screen until it settles, or once. The answer contains the failure of a plugin too."""
    screens, keys = gateway.host.screens, [key.model_dump() for key in body.keys]
    size, timeout = (body.width, body.height), _seconds(body.timeout_ms)
    screen = frame = failure = None
    try:
        screen = screens.find(body.screen)
        revision = screens.revision(screen.name)
        frame = (await screens.draw(screen.name, *size, keys, timeout, settle=body.settle)).to_json()
    except CallFailed as error:
        failure = _failure(error)
    if screen is None:
        return RenderOut(frame=None, failure=failure, screen=None)
    after = _screen_out(screens, screen, shown=True).model_copy(update={"revision": revision})
    return RenderOut(frame=frame, failure=failure, screen=after)


@router.post("/api/v1/screens:input", **needs(HOST))
async def send_host_screen_input(body: InputIn, gateway: TheGateway) -> InputOut:
    """Send keys and mouse events to a screen, in this order. A plugin that does not run gets none."""
    screens, delivered = gateway.host.screens, 0
    try:
        screen = screens.find(body.screen)
    except CallFailed as error:
        return InputOut(delivered=0, screen=None, failure=_failure(error))
    for event in body.events:
        if event.key is not None:
            delivered += screens.press(screen.name, event.key.model_dump())
        elif event.mouse is not None:
            delivered += screens.mouse(screen.name, event.mouse.model_dump(exclude_none=True))
    return InputOut(delivered=delivered, screen=_screen_out(screens, screen, shown=True), failure=None)


@router.post("/api/v1/screens:act", **needs(HOST))
async def act_on_host_plugin(body: ActionIn, gateway: TheGateway) -> ActionOut:
    """Send an action to a plugin, such as a command of its palette."""
    return ActionOut(delivered=gateway.host.screens.act(body.plugin, body.action))


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


def _screen_out(screens: Screens, screen: Screen, *, shown: bool) -> ScreenOut:
    return ScreenOut(
        name=screen.name,
        plugin=screen.plugin_id,
        screen=screen.screen,
        revision=screens.revision(screen.name),
        dirty=screens.dirty(screen.name, shown=shown),
        wedged=screens.wedged(screen.plugin_id),
    )


def _seconds(timeout_ms: int | None) -> float | None:
    return None if timeout_ms is None else timeout_ms / 1000


def _failure(error: CallFailed) -> dict[str, Any]:
    return {**error.failure.to_json(), "plugin": error.failure.plugin}
