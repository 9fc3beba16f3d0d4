"""When a frame is requested: after changes, one at a time, at most 30 per second."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from plugbay.host.config.time_factor import TIME_FACTOR
from plugbay.host.host import Host
from plugbay.host.screens.keys import parse_key
from plugbay.model.errors import Code, Failure
from plugbay.tui.painter import FRAME_SECONDS, PROBE_SECONDS, Painter
from tests.support.ainb import write_ainb_plugin
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement

COUNTS = """
drawn = 0

def render(params, m):
    global drawn
    drawn += 1
    reply(m, picture(params, "picture %d" % drawn))
"""


class Easel:
    """A painter with a manual clock."""

    def __init__(self, host: Host) -> None:
        self.shown = 0
        (screen,) = host.screens.all()
        self.painter = Painter(host.screens, screen, lambda: host.plugins()[0], self._changed)
        self.now = 0.0  # before any loop time, since the machine may have booted a minute ago

    def _changed(self, painter: Painter) -> None:
        self.shown += 1

    def tick(self, width: int = 20, height: int = 3, *, after: float = 2 * FRAME_SECONDS) -> None:
        self.now += after
        self.painter.tick(width, height, self.now)

    async def drawn(self, text: str) -> None:
        await until(lambda: self.painter.frame is not None and text in self.painter.frame.lines()[0], 20)


def paint(run: Run, root: Path, story: Callable[[Easel], Awaitable[None]]) -> None:
    """Run a story with a painter of the only screen in `root`."""

    async def main() -> None:
        async with Host.load(root, grant_all=True) as host:
            easel = Easel(host)
            await story(easel)
            await easel.painter.close()

    run(main)


@requirement("ainb:tui-pace")
def test_nothing_is_asked_while_a_question_is_open(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "p", COUNTS, screens=["main"])

    async def story(easel: Easel) -> None:
        for _ in range(100):
            easel.tick()
        await easel.drawn("picture 1")
        easel.painter.request_again()
        easel.tick()
        await easel.drawn("picture 2")

    paint(run, tmp_path, story)


@requirement("ainb:tui-pace")
def test_a_picture_that_is_up_to_date_is_not_asked_for_again(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "p", COUNTS, screens=["main"])

    async def story(easel: Easel) -> None:
        easel.tick()
        await easel.drawn("picture 1")
        for _ in range(100):
            easel.tick()
            await asyncio.sleep(0)
        assert easel.shown == 1
        assert easel.painter.press(parse_key("x"))
        easel.tick()
        await easel.drawn("picture 2")

    paint(run, tmp_path, story)


@requirement("ainb:tui-pace")
def test_pictures_keep_their_distance(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "p", COUNTS, screens=["main"])

    async def story(easel: Easel) -> None:
        easel.tick()
        await easel.drawn("picture 1")
        easel.painter.request_again()
        easel.tick(after=FRAME_SECONDS / 2)
        await asyncio.sleep(0)
        assert easel.shown == 1
        easel.tick(after=FRAME_SECONDS)
        await easel.drawn("picture 2")

    paint(run, tmp_path, story)


def test_another_size_asks_for_another_picture_and_no_room_for_none(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "p", COUNTS, screens=["main"])

    async def story(easel: Easel) -> None:
        easel.tick(0, 3)
        easel.tick(20, 0)
        assert easel.painter.frame is None
        easel.tick(20, 3)
        await easel.drawn("picture 1")
        easel.tick(30, 3)
        await easel.drawn("picture 2")
        assert easel.painter.frame is not None
        assert easel.painter.frame.width == 30

    paint(run, tmp_path, story)


@requirement("ainb:tui-wedged")
def test_a_silent_plugin_is_asked_again_only_after_a_while(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIME_FACTOR, "2")
    body = COUNTS.replace("    reply", "    if drawn != 2: reply")
    write_ainb_plugin(tmp_path, "p", body, screens=["main"])

    async def story(easel: Easel) -> None:
        painter = easel.painter
        easel.tick()
        await easel.drawn("picture 1")
        painter.request_again()
        easel.tick()
        await until(lambda: painter.failure is not None)
        assert painter.failure is not None
        assert painter.failure.code == Code.TIMEOUT
        assert painter.stuck
        assert painter.broken is None
        easel.now = asyncio.get_running_loop().time()
        painter.press(parse_key("x"))
        for _ in range(20):
            easel.tick()
        assert painter._asking is None
        easel.tick(after=PROBE_SECONDS)
        await easel.drawn("picture 3")
        assert not painter.stuck

    paint(run, tmp_path, story)


@requirement("ainb:tui-crash")
def test_a_dead_plugin_is_not_asked_until_requested(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "p", COUNTS, screens=["main"])

    async def story(easel: Easel) -> None:
        painter = easel.painter
        easel.tick()
        await easel.drawn("picture 1")
        os.kill(painter.status().pid or 0, signal.SIGKILL)
        await until(lambda: painter.status().pid is None, 20)
        painter.process_ended(Failure(Code.CRASHED, "it is gone"))
        painter.frame = None
        assert painter.broken is not None
        for width in range(20, 120):
            easel.tick(width, after=10)
        assert painter._asking is None
        painter.request_again()
        easel.tick()
        await easel.drawn("picture 1")
        assert painter.broken is None

    paint(run, tmp_path, story)


def test_an_error_of_a_living_plugin_is_asked_about_again_when_something_changed(run: Run, tmp_path: Path) -> None:
    body = """
    def render(params, m):
        if keys:
            reply(m, picture(params, "well again"))
        else:
            fail(m, -32603, "not yet")
    """
    write_ainb_plugin(tmp_path, "p", body, screens=["main"])

    async def story(easel: Easel) -> None:
        easel.tick()
        await until(lambda: easel.painter.broken is not None)
        assert easel.painter.broken is not None
        assert "not yet" in easel.painter.broken.message
        easel.now = asyncio.get_running_loop().time()
        easel.painter.press(parse_key("x"))
        easel.tick(after=10)
        await easel.drawn("well again")

    paint(run, tmp_path, story)


def test_a_painter_that_is_held_asks_nothing_and_shows_nothing(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "p", COUNTS, screens=["main"])

    async def story(easel: Easel) -> None:
        easel.tick()
        await easel.drawn("picture 1")
        easel.painter.hold()
        easel.painter.request_again()
        easel.tick()
        easel.painter.process_ended(Failure(Code.CRASHED, "replaced"))
        assert (easel.painter.frame, easel.painter.failure) == (None, None)
        easel.painter.renew()
        easel.tick()
        await easel.drawn("picture 2")

    paint(run, tmp_path, story)


@requirement("ainb:tui-crash")
def test_the_end_of_a_process_takes_the_open_question_back(run: Run, tmp_path: Path) -> None:
    body = """
    def render(params, m):
        pass
    """
    write_ainb_plugin(tmp_path, "p", body, screens=["main"])

    async def story(easel: Easel) -> None:
        easel.tick()
        await until(lambda: easel.painter.status().pid is not None)
        easel.painter.process_ended(Failure(Code.CRASHED, "it is gone"))
        await until(lambda: easel.painter._asking is None)
        assert easel.painter.broken is not None
        assert easel.shown == 1

    paint(run, tmp_path, story)


def test_closing_takes_the_open_question_back(run: Run, tmp_path: Path) -> None:
    body = """
    def render(params, m):
        pass
    """
    write_ainb_plugin(tmp_path, "p", body, screens=["main"])

    async def story(easel: Easel) -> None:
        easel.tick()
        await until(lambda: easel.painter.status().pid is not None)
        await easel.painter.close()
        assert easel.shown == 0

    paint(run, tmp_path, story)
