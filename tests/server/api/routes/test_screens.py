"""Screens and command lines over HTTP."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

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
            assert listed == {"screens": [{"name": "p/main", "plugin": "p", "screen": "main"}]}
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
