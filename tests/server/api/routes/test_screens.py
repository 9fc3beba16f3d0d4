"""Screens and command lines over HTTP."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.host import Host
from plugbay.host.screens.frames import Frame
from tests.support.ainb import write_ainb_plugin
from tests.support.gateways import client_of, gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.requirements import requirement

KEY = {"code": {"type": "char", "ch": "x"}, "mods": 0, "kind": "press"}


@requirement("ainb:server-screens")
def test_a_screen_is_drawn_and_a_command_line_run_by_the_operator_alone(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    write_ainb_plugin(tmp_path / "plugins", "p", screens=["main"], namespaces=["n"])

    async def main() -> None:
        host = Host.load(tmp_path / "plugins")
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway, client_of(gateway) as client:
            listed = (await client.get("/api/v1/screens")).json()
            state = {"revision": 1, "dirty": True, "wedged": False}
            assert listed == {"screens": [{"name": "p/main", "plugin": "p", "screen": "main", **state}]}
            body = {"screen": "p/main", "width": 20, "height": 2, "keys": [KEY]}
            drawn = (await client.post("/api/v1/screens:render", json=body)).json()
            assert (drawn["failure"], drawn["frame"]["lines"]) == (None, ["p 20x2", "keys x"])
            assert Frame.from_json(drawn["frame"]).lines() == ["p 20x2", "keys x"]
            lost = (await client.post("/api/v1/screens:render", json={"screen": "none"})).json()
            assert (lost["frame"], lost["failure"]["code"]) == (None, "not_found")
            done = (await client.post("/api/v1/command-lines:run", json={"namespace": "n", "argv": ["a", "b"]})).json()
            assert (b64decode(done["stdout"]), done["exit_code"], done["failure"]) == (b"n a b\n", 0, None)
            gone = (await client.post("/api/v1/command-lines:run", json={"namespace": "none"})).json()
            assert (gone["exit_code"], gone["failure"]["code"]) == (None, "not_found")
            for odd in ({"screen": "p/main", "width": 0}, {**body, "keys": [KEY] * 65}):
                assert (await client.post("/api/v1/screens:render", json=odd)).status_code in (400, 422)
            await make_org(gateway)
            key = await make_key(gateway, "org_1")
            async with client_of(gateway, key) as other:
                assert (await other.get("/api/v1/screens")).status_code == 403
                assert (await other.post("/api/v1/screens:render", json=body)).status_code == 403
                assert (await other.post("/api/v1/command-lines:run", json={"namespace": "n"})).status_code == 403

    run(main)


MOUSE = {"kind": {"type": "down", "button": {"type": "left"}}, "col": 3, "row": 1, "mods": 0}

INPUT = """
def handle_mouse(params):
    mouse = params["mouse"]
    keys.append("%s@%d,%d" % (mouse["kind"]["type"], mouse["col"], mouse["row"]))

def handle_action(params):
    keys.append("did " + params["action_id"])
"""


def press(*characters: str) -> list[dict[str, Any]]:
    return [{"key": {"code": {"type": "char", "ch": character}}} for character in characters]


@requirement("ainb:server-screen-input")
def test_input_and_actions_reach_a_screen_in_order_and_every_viewer_learns_of_them(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    write_ainb_plugin(tmp_path / "plugins", "p", INPUT, screens=["main"])

    async def main() -> None:
        host = Host.load(tmp_path / "plugins")
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway, client_of(gateway) as client:

            async def post(operation: str, body: dict[str, Any]) -> Any:
                answer = await client.post(f"/api/v1/screens:{operation}", json=body)
                assert answer.status_code == 200, answer.text
                return answer.json()

            async def revision() -> int:
                (screen,) = (await client.get("/api/v1/screens", params={"shown": "p/main"})).json()["screens"]
                number: int = screen["revision"]
                return number

            events = {"screen": "p/main", "events": [*press(*"abc"), {"mouse": MOUSE}, *press("d")]}
            render = {"screen": "p/main", "width": 40, "height": 2, "settle": False}
            assert (await post("input", events))["delivered"] == 0, "the plugin does not run yet"
            assert await post("act", {"plugin": "p", "action": "tidy"}) == {"delivered": False}
            assert (await post("render", render))["frame"]["lines"][1] == "keys"
            sent = await post("input", events)
            assert (sent["delivered"], sent["failure"], sent["screen"]["dirty"]) == (5, None, True)
            drawn = await post("render", render)
            assert drawn["frame"]["lines"][1] == "keys a b c down@3,1 d"
            assert drawn["screen"]["revision"] == sent["screen"]["revision"] == await revision()
            assert await post("act", {"plugin": "p", "action": "tidy"}) == {"delivered": True}
            assert (await post("render", {**render, "settle": True}))["frame"]["lines"][1].endswith("d did tidy")
            assert await revision() > drawn["screen"]["revision"], "the frame of the first viewer is out of date"
            lost = await post("input", {**events, "screen": "p/none"})
            assert (lost["delivered"], lost["screen"], lost["failure"]["code"]) == (0, None, "not_found")
            assert await post("act", {"plugin": "none", "action": "tidy"}) == {"delivered": False}

    run(main)


@requirement("ainb:server-screen-input")
@pytest.mark.parametrize(
    "event",
    [
        {},
        {"key": {"code": {}}},
        {"key": {"code": {"type": 3}}},
        {"key": {"code": {"type": "char"}}},
        {"key": {"code": {"type": "char", "ch": "ab"}}},
        {"key": {"code": {"type": "f"}}},
        {"key": {"code": {"type": "f", "n": 10**30}}},
        {"key": {"code": {"type": "enter", **{str(n): n for n in range(9)}}}},
        {"key": {"code": {"type": "enter"}, "mods": 256}},
        {"key": {"code": {"type": "enter"}}, "mouse": MOUSE},
        {"mouse": {**MOUSE, "col": -1}},
        {"mouse": {**MOUSE, "row": 0x10000}},
        {"mouse": {**MOUSE, "kind": {"type": "down"}}},
        {"mouse": {**MOUSE, "kind": {"type": "scroll_up", "button": {"type": "left"}}}},
        {"mouse": {**MOUSE, "kind": {"type": "leap"}}},
    ],
    ids=str,
)
def test_input_of_another_shape_is_refused(event: dict[str, Any], sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_ainb_plugin(tmp_path / "plugins", "p", screens=["main"])

    async def main() -> None:
        host = Host.load(tmp_path / "plugins")
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway, client_of(gateway) as client:
            sent = await client.post("/api/v1/screens:input", json={"screen": "p/main", "events": [event]})
            assert sent.status_code in (400, 422), sent.text
            if "key" in event and "mouse" not in event:
                body = {"screen": "p/main", "keys": [event["key"]]}
                assert (await client.post("/api/v1/screens:render", json=body)).status_code in (400, 422)

    run(main)


@requirement("ainb:server-screen-input")
def test_too_much_input_is_refused(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_ainb_plugin(tmp_path / "plugins", "p", screens=["main"])

    async def main() -> None:
        host = Host.load(tmp_path / "plugins")
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway, client_of(gateway) as client:
            for events in ([], press("x") * 65):
                body = {"screen": "p/main", "events": events}
                assert (await client.post("/api/v1/screens:input", json=body)).status_code in (400, 422)
            body = {"plugin": "p", "action": "x" * 501}
            assert (await client.post("/api/v1/screens:act", json=body)).status_code in (400, 422)

    run(main)
