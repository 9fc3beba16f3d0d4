"""Screens of real plugins, drawn and used. Real children, both loops."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plugbay import CallFailed, Code, Host
from plugbay.host.config.time_factor import TIME_FACTOR
from plugbay.host.screens.frames import MAX_CELLS
from plugbay.host.screens.keys import parse_key
from plugbay.host.screens.screens import MAX_REDRAWS, REDRAW_SECONDS, CliOutput, Screen, Screens
from plugbay.model.lifecycle import PENDING
from tests.support.ainb import write_ainb_plugin
from tests.support.loops import Run
from tests.support.patience import PATIENCE, until
from tests.support.requirements import requirement

LATE = """
pending = []
def render(params, m):
    pending.append((m, params))
def handle_key(params):
    keys.append(params["key"]["code"].get("ch"))
    while pending:
        m, p = pending.pop(0)
        reply(m, picture(p, "late " + str(len(keys))))
"""
"""Draws only after a key."""

STUCK = "def render(params, m):\n    pass\n"
"""Never draws."""

SHOWS = "def render(params, m):\n    reply(m, picture(params, {shown}))\n"


async def text(host: Host, name: str = "p/main", width: int = 30, height: int = 3, **more: Any) -> str:
    frame = await host.screens.render(name, width, height, **more)
    return " | ".join(filter(None, frame.lines()))


def pid(host: Host, plugin_id: str = "p") -> int | None:
    return next(status.pid for status in host.plugins() if status.spec.id == plugin_id)


# Drawing.


@requirement("ainb:host-render")
def test_an_idle_plugin_is_started_and_draws_at_the_requested_size(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, screens=["main"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert host.screens.all() == [Screen("p/main", "p", "main")]
            assert host.plugins()[0].state == "idle"
            assert await text(host, "main", 40, 5) == "p 40x5 | keys"
            assert await text(host, "p/main", 80, 24) == "p 80x24 | keys"
            assert host.plugins()[0].generation == 1

    run(main)


@requirement("ainb:host-render-screen-id")
def test_a_render_names_the_screen(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, body=SHOWS.format(shown='params["screen_id"]'), screens=["one", "two"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert [await text(host, name) for name in ("one", "p/two")] == ["one", "two"]
            with pytest.raises(CallFailed, match="no screen is called 'three'"):
                await text(host, "three")

    run(main)


def test_a_screen_may_have_the_name_of_a_namespace(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "usage", screens=["usage"], namespaces=["usage"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert await text(host, "usage") == "usage 30x3 | keys"
            assert (await host.run_cli("usage", ["-v"])).stdout == b"usage -v\n"

    run(main)


@pytest.mark.parametrize(("width", "height"), [(0, 5), (5, -1), (65536, 1), (MAX_CELLS + 1, 1), (900, 900)])
def test_a_size_that_no_answer_could_fill_is_refused_before_anything_starts(
    run: Run, tmp_path: Path, width: int, height: int
) -> None:
    write_ainb_plugin(tmp_path, screens=["main"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            with pytest.raises(CallFailed, match="cannot be drawn") as caught:
                await text(host, width=width, height=height)
            assert caught.value.code == Code.INVALID_INPUT
            assert host.plugins()[0].state == "idle"

    run(main)


def test_a_plugin_without_grants_draws_nothing(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, screens=["main"], capabilities={"event_bus": True})

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            with pytest.raises(CallFailed) as caught:
                await text(host)
            assert caught.value.code == Code.CAPABILITY_NOT_ALLOWED
            assert host.plugins()[0].state == PENDING
        async with Host.load(tmp_path, grant_all=True) as host:
            assert await text(host) == "p 30x3 | keys"

    run(main)


@requirement("ainb:host-render-types", "ainb:host-isolation")
@pytest.mark.parametrize(
    ("shown", "path"),
    [
        ('{"buffer": {"width": 3, "height": 1, "cells": [[{"x": 70000, "y": 0}, {"symbol": "a"}]]}}', "cells[0][0].x"),
        ('{"buffer": "none"}', "$.buffer"),
        ("None", "Expected `object`"),
        ('{"buffer": {"width": 1, "height": 1, "cells": [[{"x": 0, "y": 0}, {"symbol": ""}]] * 400_000}}', "malformed"),
    ],
)
def test_a_picture_that_is_none_fails_its_call_and_nothing_else(
    run: Run, tmp_path: Path, shown: str, path: str
) -> None:
    body = f"""
    answers = [{shown}]
    def render(params, m):
        reply(m, answers.pop() if answers else picture(params, "well"))
    """
    write_ainb_plugin(tmp_path, body=body, screens=["main"])
    write_ainb_plugin(tmp_path, "q", screens=["other"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            with pytest.raises(CallFailed) as caught:
                await text(host, timeout=PATIENCE)
            assert caught.value.code == Code.MALFORMED_RESPONSE
            assert path in str(caught.value) and caught.value.failure.plugin == "p"
            assert await text(host) == "well", "by the same process"
            assert await text(host, "other") == "q 30x3 | keys"
            assert host.plugins()[0].generation == 1

    run(main)


@requirement("ainb:host-render-symbols")
def test_an_escape_sequence_in_a_symbol_never_arrives(run: Run, tmp_path: Path) -> None:
    body = r"""
    def render(params, m):
        symbols = ["\x1b[31m", "\x1b]0;t\x07", "a", "\u202e", "b"]
        cells = [[{"x": x, "y": 0}, {"symbol": symbol}] for x, symbol in enumerate(symbols)]
        reply(m, {"buffer": {"width": 9, "height": 1, "cells": cells}})
    """
    write_ainb_plugin(tmp_path, body=body, screens=["main"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert (await host.screens.render("main", 9, 1)).lines() == ["  a b"]

    run(main)


CELL = b'[{"x":0,"y":0},{"symbol":""}]'


@requirement("ainb:host-render-too-large", "ainb:host-isolation")
@pytest.mark.parametrize("cells", ['b"0" * (17 << 20)', f'b",".join([{CELL!r}] * 1_000_000)'])
def test_a_picture_that_no_message_can_hold_ends_that_process_and_no_other(
    run: Run, tmp_path: Path, cells: str
) -> None:
    body = f"""
    def render(params, m):
        buffer = b'{{"width":1,"height":1,"cells":[' + {cells} + b"]}}"
        body = b'{{"jsonrpc":"2.0","id":%d,"result":{{"buffer":%b}}}}' % (m["id"], buffer)
        raw(b"Content-Length: %d\\r\\n\\r\\n%b" % (len(body), body))
    """
    write_ainb_plugin(tmp_path, body=body, screens=["main"])
    write_ainb_plugin(tmp_path, "q", screens=["other"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert await text(host, "other") == "q 30x3 | keys"
            with pytest.raises(CallFailed) as caught:
                await text(host, timeout=PATIENCE)
            assert caught.value.code == Code.FRAME_TOO_LARGE
            assert await text(host, "other") == "q 30x3 | keys"
            assert [status.generation for status in host.plugins()] == [1, 1]

    run(main)


def test_a_plugin_that_cannot_start_says_why_and_is_tried_once(run: Run, tmp_path: Path) -> None:
    root = write_ainb_plugin(tmp_path, screens=["main"])
    (root / "p").write_text("#!/bin/sh\necho tried >> tries\necho no luck >&2\nexit 3\n")

    async def main() -> None:
        async with Host.load(tmp_path, unconfined=True) as host:  # it writes beside itself
            with pytest.raises(CallFailed) as caught:
                await text(host)
            assert caught.value.code == Code.CRASHED
            assert caught.value.failure.detail["stderr_tail"] == ["no luck"]
            assert (root / "tries").read_text() == "tried\n"

    run(main)


# A picture that takes too long.


@requirement("ainb:host-render-watchdog", "ainb:host-isolation")
def test_a_plugin_that_never_draws_in_time_is_left_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIME_FACTOR, "2")
    write_ainb_plugin(tmp_path, body=STUCK, screens=["main"])
    write_ainb_plugin(tmp_path, "q", screens=["other"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert not host.screens.wedged("p")
            with pytest.raises(CallFailed, match="render exceeded 4 s") as caught:
                await text(host)
            assert (caught.value.code, caught.value.failure.plugin) == (Code.TIMEOUT, "p")
            assert host.screens.wedged("p") and not host.screens.wedged("q")
            assert pid(host) is not None and host.plugins()[0].state == "running"
            assert await text(host, "other") == "q 30x3 | keys"

    run(main)


@requirement("ainb:host-render-watchdog")
def test_a_late_answer_clears_the_flag(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, body=LATE, screens=["main"], namespaces=["n"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await host.run_cli("n", [])
            with pytest.raises(CallFailed, match=r"render exceeded 0.05 s"):
                await text(host, timeout=0.05)
            assert host.screens.wedged("p")
            assert host.screens.press("main", parse_key("a"))
            await until(lambda: not host.screens.wedged("p"))

    run(main)


@requirement("ainb:host-render-watchdog")
def test_any_other_answer_clears_the_flag(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, body=STUCK, screens=["main"], namespaces=["n"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await host.run_cli("n", [])
            with pytest.raises(CallFailed):
                await text(host, timeout=0.05)
            assert host.screens.wedged("p")
            await host.run_cli("n", [])
            assert not host.screens.wedged("p")

    run(main)


@requirement("ainb:host-render-watchdog")
def test_another_process_is_not_to_blame_for_the_last_one(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, body=STUCK, screens=["main"], namespaces=["n"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await host.run_cli("n", [])
            with pytest.raises(CallFailed):
                await text(host, timeout=0.05)
            assert host.screens.wedged("p")
            await host.reload("p")
            assert not host.screens.wedged("p")

    run(main)


@requirement("ainb:host-render-cold")
def test_the_time_for_a_picture_begins_when_the_plugin_is_there(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, body="time.sleep(2.2)\n", screens=["main"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert await text(host) == "p 30x3 | keys"

    run(main)


def test_a_start_longer_than_the_timeout_is_not_a_hang(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, body="time.sleep(30)\n", screens=["main"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            with pytest.raises(CallFailed) as caught:
                await text(host, timeout=0.05)
            assert caught.value.code == Code.TIMEOUT
            assert "render exceeded" not in str(caught.value)
            assert not host.screens.wedged("p")

    run(main)


# Keys, the mouse and actions.


@requirement("ainb:host-keys", "ainb:host-key-generation")
def test_keys_arrive_in_order_before_the_next_picture_and_are_numbered(run: Run, tmp_path: Path) -> None:
    body = """
    numbers = []
    def handle_key(params):
        keys.append(params["screen_id"] + ":" + params["key"]["code"].get("ch", params["key"]["code"]["type"]))
        numbers.append(params["generation"])
    def render(params, m):
        reply(m, picture(params, " ".join(keys), str(numbers), str(params["generation"])))
    """
    write_ainb_plugin(tmp_path, body=body, screens=["main"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert await text(host) == "[] | 0"
            assert all(host.screens.press("main", parse_key(key)) for key in ("a", "enter", "é"))
            assert await text(host, width=40) == "main:a main:enter main:é | [1, 2, 3] | 3"

    run(main)


@requirement("ainb:host-keys-dead")
def test_a_key_is_lost_where_no_process_lives_and_starts_none(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, screens=["main"])
    click = {"kind": {"type": "down", "button": {"type": "left"}}, "col": 0, "row": 0, "mods": 0}

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert not host.screens.press("main", parse_key("a"))
            assert not host.screens.mouse("main", click)
            assert not host.screens.act("p", "refresh")
            assert not host.screens.act("nobody", "refresh")
            assert host.plugins()[0].state == "idle"
            assert await text(host) == "p 30x3 | keys"
            assert host.screens.press("main", parse_key("b"))
            assert await text(host) == "p 30x3 | keys b"

    run(main)


@requirement("ainb:host-key-insert")
def test_a_key_of_a_later_abi_is_never_sent(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, screens=["main"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await text(host)
            assert not host.screens.press("main", parse_key("insert"))
            assert not host.screens.dirty("main")
            assert host.screens.press("main", parse_key("delete"))
            assert await text(host) == "p 30x3 | keys delete"

    run(main)


@requirement("ainb:host-mouse")
def test_mouse_events_on_the_screen_are_sent_and_no_others(run: Run, tmp_path: Path) -> None:
    body = """
    def handle_mouse(params):
        mouse = params["mouse"]
        button = mouse["kind"].get("button", {}).get("type", "")
        keys.append(mouse["kind"]["type"] + button + str(mouse["col"]) + "," + str(mouse["row"]))
    """
    write_ainb_plugin(tmp_path, body=body, screens=["main"])

    def mouse(kind: dict[str, Any], col: int, row: int) -> dict[str, Any]:
        return {"kind": kind, "col": col, "row": row, "mods": 0}

    down: dict[str, Any] = {"type": "down", "button": {"type": "left"}}

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await text(host)
            assert host.screens.mouse("main", mouse(down, 7, 2))
            assert not host.screens.mouse("main", mouse({"type": "moved"}, 7, 2))
            for col, row in ((30, 2), (7, 3), (-1, 0)):
                assert not host.screens.mouse("main", mouse(down, col, row))
            assert host.screens.mouse("main", mouse({"type": "scroll_up"}, 29, 0))
            assert await text(host, width=40) == "p 40x3 | keys downleft7,2 scroll_up29,0"

    run(main)


@requirement("ainb:host-actions-performed")
def test_an_action_is_sent_with_its_payload(run: Run, tmp_path: Path) -> None:
    body = 'def handle_action(params):\n    keys.append(json.dumps([params["action_id"], params.get("payload")]))\n'
    write_ainb_plugin(tmp_path, body=body, screens=["main"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await text(host)
            assert host.screens.act("p", "open", {"id": [1, None]})
            assert host.screens.act("p", "close")
            assert await text(host, width=60) == 'p 60x3 | keys ["open", {"id": [1, null]}] ["close", null]'

    run(main)


@requirement("ainb:host-key-flood", "ainb:host-isolation")
def test_a_flood_of_keys_to_a_plugin_that_does_not_read_is_harmless(run: Run, tmp_path: Path) -> None:
    body = "import signal\ndef render(params, m):\n    reply(m, picture(params, str(len(keys))))\n    signal.pause()\n"
    write_ainb_plugin(tmp_path, body=body, screens=["main"])
    write_ainb_plugin(tmp_path, "q", screens=["other"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert await text(host) == "0"
            key = parse_key("x")
            for _ in range(20_000):
                assert host.screens.press("main", key)
            assert host.plugins()[0].counters["keys_dropped"] > 10_000
            assert await text(host, "other") == "q 30x3 | keys"
            assert host.screens.press("other", key)
            assert await text(host, "other") == "q 30x3 | keys x"
            os.kill(pid(host) or 0, signal.SIGKILL)

    run(main)


# When a picture is out of date.


@requirement("ainb:host-dirty")
def test_a_frame_is_out_of_date_after_a_notification(run: Run, tmp_path: Path) -> None:
    bus, news = {"event_bus": True}, {"snapshots": ["news"]}
    write_ainb_plugin(tmp_path, screens=["one", "two"], capabilities=bus, subscribes=news)
    write_ainb_plugin(tmp_path, "q", screens=["other"])

    async def main() -> None:
        async with Host.load(tmp_path, grant_all=True) as host:
            screens = host.screens

            async def draw_all() -> None:
                for screen in screens.all():
                    assert screens.dirty(screen.name)
                    await screens.render(screen.name, 20, 5)
                    assert not screens.dirty(screen.name)

            def told_p() -> list[bool]:
                return [screens.dirty(name) for name in ("one", "two", "other")]

            await draw_all()
            things: list[Callable[[], object]] = [
                lambda: screens.press("one", parse_key("a")),
                lambda: screens.mouse("two", {"kind": {"type": "scroll_up"}, "col": 0, "row": 0, "mods": 0}),
                lambda: screens.act("p", "refresh"),
                lambda: host.snapshots.publish("news", b"x"),
            ]
            for thing in things:
                thing()
                assert told_p() == [True, True, False]
                await screens.render("one", 20, 5)
                assert told_p() == [False, True, False]
                await screens.render("two", 20, 5)

    run(main)


@requirement("ainb:host-dirty")
def test_a_key_that_comes_while_the_picture_is_drawn_asks_for_another(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, body=LATE, screens=["main"], namespaces=["n"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await host.run_cli("n", [])
            drawing = asyncio.ensure_future(text(host))
            await until(lambda: host.plugins()[0].busy == 1)
            assert host.screens.press("main", parse_key("a"))
            assert await drawing == "late 1"
            assert host.screens.dirty("main")

    run(main)


@requirement("ainb:host-dirty")
def test_a_cancelled_render_leaves_the_frame_out_of_date(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, body=LATE, screens=["main"], namespaces=["n"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await host.run_cli("n", [])
            drawing = asyncio.ensure_future(text(host))
            await until(lambda: host.plugins()[0].busy == 1)
            host.screens.press("main", parse_key("a"))
            await drawing
            await until(lambda: host.plugins()[0].busy == 0)
            drawing = asyncio.ensure_future(text(host))
            await until(lambda: host.plugins()[0].busy == 1)
            assert not host.screens.dirty("main")
            drawing.cancel()
            await asyncio.gather(drawing, return_exceptions=True)
            assert host.screens.dirty("main")

    run(main)


@requirement("ainb:server-screen-input")
def test_the_revision_grows_with_input_and_processes_and_not_with_renders(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, screens=["main"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            screens = host.screens
            assert screens.find("main") == Screen("p/main", "p", "main")
            before = screens.revision("main")
            await text(host)
            started = screens.revision("main")
            assert started > before
            await text(host)
            assert screens.revision("p/main") == started
            screens.press("main", parse_key("a"))
            await screens.draw("main", 20, 2)
            pressed = screens.revision("main")
            assert pressed > started and not screens.dirty("main")
            await host.reload("p")
            await text(host)
            assert screens.revision("main") > pressed

    run(main)


@requirement("ainb:server-screen-input")
def test_a_screen_that_is_listed_and_not_shown_lets_its_plugin_become_idle(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ainb_plugin(tmp_path, screens=["main"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await text(host)
            marks: list[bool] = []
            monkeypatch.setattr(host.supervisor("p"), "mark_shown", lambda: marks.append(True))
            assert not host.screens.dirty("main", shown=False)
            host.screens.revision("main")
            assert marks == []
            assert not host.screens.dirty("main")
            assert marks == [True]

    run(main)


@requirement("ainb:server-screen-input")
def test_a_screen_that_is_not_to_settle_is_drawn_once(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, body=SHOWS.format(shown='"drawn", redraw=True'), screens=["main"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            frame = await host.screens.draw("main", 20, 2, settle=False)
            assert frame.redraw and host.screens.dirty("main")

    run(main)


@requirement("ainb:host-dirty")
def test_the_picture_of_another_process_is_out_of_date(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, screens=["main"], lifecycle={"spawn": "eager"})

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await text(host)
            assert not host.screens.dirty("main")
            await host.reload("p")
            await host.settled()
            assert host.screens.dirty("main")
            await text(host)
            assert not host.screens.dirty("main")

    run(main)


@requirement("ainb:host-redraw-cap")
def test_a_plugin_may_ask_to_be_drawn_again_600_times_and_then_every_five_seconds(run: Run, tmp_path: Path) -> None:
    body = SHOWS.format(shown='redraw=params["viewport"]["width"] > 1')
    write_ainb_plugin(tmp_path, body=body, screens=["main"])
    now = 100.0

    async def main() -> None:
        nonlocal now
        async with Host.load(tmp_path) as host:
            screens = Screens(host.calls, lambda: now)

            async def honoured(width: int = 2) -> bool:
                await screens.render("main", width, 1)
                return screens.dirty("main")

            assert not await honoured(1), "it is content"
            assert all([await honoured() for _ in range(MAX_REDRAWS)])
            assert not await honoured()
            now += REDRAW_SECONDS
            assert screens.dirty("main"), "one more after a while"
            assert not await honoured()
            assert screens.press("main", parse_key("a"))
            assert await honoured(), "somebody is there"
            assert not await honoured(1)

    run(main)


@requirement("ainb:host-render-watchdog")
def test_a_picture_that_took_too_long_is_worth_another_try_later(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, body=STUCK, screens=["main"], namespaces=["n"])
    now = 0.0

    async def main() -> None:
        nonlocal now
        async with Host.load(tmp_path) as host:
            screens = Screens(host.calls, lambda: now)
            await host.run_cli("n", [])
            with pytest.raises(CallFailed):
                await screens.render("main", 2, 2, timeout=0.05)
            assert not screens.dirty("main")
            now += REDRAW_SECONDS
            assert screens.dirty("main")

    run(main)


@requirement("ainb:host-shown")
def test_a_plugin_whose_screen_is_looked_at_is_not_idle(run: Run, tmp_path: Path) -> None:
    for name in ("p", "q"):
        write_ainb_plugin(tmp_path, name, screens=["main"], namespaces=["n"], lifecycle={"idle_reap_secs": 1})

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await text(host, "p/main")
            await host.run_cli("q/n", [])
            await until(lambda: host.plugins()[1].pid is None)
            assert host.plugins()[0].state == "running"

    run(main)


DISPATCH = "def cli_dispatch(params, m):\n    "


@requirement("ainb:host-cli")
def test_a_command_line_arrives_as_it_is_and_its_output_byte_for_byte(run: Run, tmp_path: Path) -> None:
    body = (
        DISPATCH + 'reply(m, {"stdout": b64(bytes(range(256))), "stderr": b64(repr(params).encode()), "exit_code": 7})'
    )
    write_ainb_plugin(tmp_path, body=body, namespaces=["notes"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            done = await host.run_cli("notes", ["add", "--help", "-x", "", "buy milk", "漢"])
            assert done.stdout == bytes(range(256))
            assert done.stderr.decode() == repr(
                {"namespace": "notes", "argv": ["add", "--help", "-x", "", "buy milk", "漢"]}
            )
            assert done.exit_code == 7
            assert await host.run_cli("p/notes", []) == CliOutput(
                bytes(range(256)), b"{'namespace': 'notes', 'argv': []}", 7
            )

    run(main)


@requirement("ainb:host-cli")
def test_the_bytes_may_be_an_array_of_numbers_and_the_status_any_of_32_bits(run: Run, tmp_path: Path) -> None:
    body = DISPATCH + 'reply(m, {"stdout": [104, 105], "stderr": "", "exit_code": int(params["argv"][0])})'
    write_ainb_plugin(tmp_path, body=body, namespaces=["notes"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            for status in (0, 255, -1, 2**31 - 1, -(2**31)):
                assert await host.run_cli("notes", [str(status)]) == CliOutput(b"hi", b"", status)

    run(main)


@requirement("ainb:host-cli-malformed")
@pytest.mark.parametrize(
    "answer",
    [
        '{"stdout": "not base64!", "stderr": "", "exit_code": 0}',
        '{"stdout": "", "exit_code": 0}',
        '{"stdout": "", "stderr": "", "exit_code": 1.5}',
        '{"stdout": "", "stderr": "", "exit_code": 2147483648}',
        '{"stdout": [256], "stderr": "", "exit_code": 0}',
        "None",
    ],
)
def test_an_answer_of_another_shape_is_a_failure_and_the_next_one_counts(run: Run, tmp_path: Path, answer: str) -> None:
    good = '{"stdout": "", "stderr": "", "exit_code": 0}'
    write_ainb_plugin(tmp_path, body=f"{DISPATCH}reply(m, {answer} if params['argv'] else {good})", namespaces=["n"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            with pytest.raises(CallFailed) as caught:
                await host.run_cli("n", ["bad"])
            assert caught.value.code == Code.MALFORMED_RESPONSE
            assert await host.run_cli("n", []) == CliOutput(b"", b"", 0)

    run(main)


@requirement("ainb:host-cli-errors")
@pytest.mark.parametrize(
    ("number", "code"), [(-32601, Code.TOOL_NOT_EXPOSED), (-32602, Code.INVALID_INPUT), (-32000, Code.PLUGIN_ERROR)]
)
def test_a_plugin_may_refuse_a_command_line(run: Run, tmp_path: Path, number: int, code: str) -> None:
    write_ainb_plugin(tmp_path, body=f'{DISPATCH}fail(m, {number}, "no")', namespaces=["n"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            with pytest.raises(CallFailed) as caught:
                await host.run_cli("n", [])
            assert (caught.value.code, caught.value.failure.detail["plugin_code"]) == (code, number)

    run(main)


def test_nothing_is_started_for_an_unknown_name_or_arguments_that_are_not_text(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, namespaces=["notes"], screens=["list"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            with pytest.raises(CallFailed, match="no cli namespace is called 'list'") as unknown:
                await host.run_cli("list", [])
            assert unknown.value.code == Code.NOT_FOUND
            with pytest.raises(CallFailed, match="argument 2 is not UTF-8") as unsayable:
                await host.run_cli("notes", ["a", "\udcff"])
            assert unsayable.value.code == Code.INVALID_INPUT
            assert host.plugins()[0].state == "idle"

    run(main)


@requirement("ainb:host-cli-timeout")
def test_a_command_line_without_an_end_is_given_up_after_the_callers_time(run: Run, tmp_path: Path) -> None:
    body = DISPATCH + 'if not params["argv"]: reply(m, {"stdout": "", "stderr": "", "exit_code": 0})'
    write_ainb_plugin(tmp_path, body=body, namespaces=["n"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await host.run_cli("n", [])
            with pytest.raises(CallFailed) as caught:
                await host.run_cli("n", ["hang"], timeout=0.05)
            assert caught.value.code == Code.TIMEOUT
            assert (await host.run_cli("n", [])).exit_code == 0

    run(main)
