"""Screens and command lines of plugins: a screen is drawn, follows its plugin and takes keys; a command line is run."""

from __future__ import annotations

import shlex
from urllib.parse import quote

from starlette.responses import Response

from plugbay.host.screens.keys import parse_key
from plugbay.host.screens.screens import Screen
from plugbay.model.errors import CallFailed
from plugbay.server.api.sse import event_stream
from plugbay.server.dashboard import rendering
from plugbay.server.dashboard.authentication import Notice, Visit, require_session
from plugbay.server.dashboard.live import SCREEN_PAUSE, ScreenFeed, check_stream_limit, follow
from plugbay.server.dashboard.views.calls import failure_view
from plugbay.server.dashboard.views.screens import SIZES, ScreenView, size_of
from plugbay.server.dashboard.views.tones import BAD
from plugbay.server.domain.errors import invalid, not_found
from plugbay.server.domain.principal import HOST

MAX_KEYS = 64
"""Keys of one form: as many as wait for a plugin."""


@require_session(HOST)
async def show_screen(visit: Visit) -> Response:
    """A screen as it is now, with live updates."""
    screen, size = _screen(visit), visit.query("size")
    feed = ScreenFeed(visit.gateway, screen.name, size_of(size))
    return _screen_page(visit, screen, await feed.draw(settle=True))


def _screen_page(visit: Visit, screen: Screen, view: ScreenView, status: int = 200, problem: str = "") -> Response:
    return visit.page(
        "screen.html",
        status,
        Notice(BAD, problem) if problem else None,
        screen=screen,
        view=view,
        sizes=SIZES,
        size=visit.query("size") if visit.query("size") in SIZES else SIZES[0],
        query=f"name={quote(screen.name, safe='')}&size={quote(visit.query('size'), safe='')}",
    )


@require_session(HOST, live=True)
async def follow_screen(visit: Visit) -> Response:
    check_stream_limit(visit.dashboard)
    feed = ScreenFeed(visit.gateway, _screen(visit).name, size_of(visit.query("size")))
    return event_stream(visit.request, follow(visit, feed, SCREEN_PAUSE))


@require_session(HOST)
async def press_keys(visit: Visit) -> Response:
    """Send keys to a screen: each by its name. The script of the page needs no page in return."""
    screen = _screen(visit)
    names = [name for text in visit.form.get("key", ()) for name in (text.split() if text.strip() else ["space"])]
    feed = ScreenFeed(visit.gateway, screen.name, size_of(visit.query("size")))
    try:
        keys = [parse_key(name[:40]) for name in names[:MAX_KEYS]]
    except ValueError as error:
        if visit.field("quiet"):
            raise invalid("request.invalid", str(error), "key") from None
        return _screen_page(visit, screen, await feed.draw(settle=True), 400, str(error))
    delivered = [visit.gateway.host.screens.press(screen.name, key) for key in keys]
    if visit.field("quiet"):
        return Response(status_code=204, headers=rendering.HEADERS)
    problem = "" if all(delivered) else "The plugin is not running, so it did not get all keys."
    return _screen_page(visit, screen, await feed.draw(settle=True), 200, problem)


def _screen(visit: Visit) -> Screen:
    """The requested screen; raises `not_found`."""
    name = visit.query("name")
    found = next((each for each in visit.gateway.host.screens.all() if each.name == name), None)
    if found is None:
        raise not_found("export", name)
    return found


# Command lines.


@require_session(HOST)
async def show_command_line(visit: Visit) -> Response:
    return _command_page(visit)


@require_session(HOST)
async def run_command_line(visit: Visit) -> Response:
    """Run a command line of a plugin with the submitted words."""
    try:
        words = shlex.split(visit.field("words"))
    except ValueError as error:
        return _command_page(visit, 400, problem=f"The words cannot be split: {error}.")
    name = _namespace(visit)
    try:
        done = await visit.gateway.host.run_cli(name, words)
    except CallFailed as error:
        return _command_page(visit, failure=failure_view(error.failure))
    output = {
        "exit_code": done.exit_code,
        "stdout": done.stdout.decode("utf-8", "backslashreplace"),
        "stderr": done.stderr.decode("utf-8", "backslashreplace"),
    }
    return _command_page(visit, output=output)


def _namespace(visit: Visit) -> str:
    """The full name of the requested command line; raises `not_found`."""
    name = visit.query("name")
    export = visit.gateway.host.exports().get(name)
    if export is None or export.kind != "cli_namespace":
        raise not_found("export", name)
    return name


def _command_page(
    visit: Visit,
    status: int = 200,
    *,
    problem: str = "",
    failure: object = None,
    output: dict[str, object] | None = None,
) -> Response:
    name = _namespace(visit)
    return visit.page(
        "command.html",
        status,
        name=name,
        plugin_id=name.rpartition("/")[0],
        namespace=name.rpartition("/")[2],
        words=visit.field("words"),
        problem=problem,
        failure=failure,
        output=output,
    )
