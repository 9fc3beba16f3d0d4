"""A host of real plugins that try to reach files of others, run as root or as another user; prints JSON.

Everything is in one folder that the operator names as the project: plugbay.toml, the data of a server, a database, and
the plugins. The same attacks are made on a host that protects nothing, as a control.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from plugbay import Host
from plugbay.model.errors import CallFailed
from plugbay.model.protected import Entry, Protected
from plugbay.model.spec import PluginSpec
from tests.support.ainb import write_ainb_plugin
from tests.support.kaged import write_kaged_plugin
from tests.support.nexo import write_nexo_plugin

LOOKS = """
def seen(path):
    try:
        if os.path.isdir(path):
            return ",".join(sorted(os.listdir(path)))
        with open(path) as file:
            return file.read().strip()
    except OSError as error:
        return error.strerror

def changed(path):
    try:
        with open(path, "w") as file:
            file.write("evil")
        return "changed"
    except OSError as error:
        return error.strerror

def tool(name, params, m):
    reply(m, {path: seen(path) for path in params["paths"]})

def tool_invoke(m):
    args = m["params"]["args"]
    reply(m, {"seen": [seen(path) for path in args["paths"]], "changed": [changed(path) for path in args["changes"]]})
"""

ASKS = """
def cli_dispatch(params, m):
    request(90, "host/fs/read_file", path=params["argv"][0])
    answer = _read()
    said = answer["error"]["message"] if "error" in answer else unb64(answer["result"]["bytes"]).decode()
    reply(m, {"stdout": b64(said.encode()), "stderr": "", "exit_code": 0})
"""

PATIENCE = 40
"""Seconds for each step of a plugin on a busy machine."""

KEPT = ("plugbay.toml", "data/operator.token", "data/secret.key", "data/plugbay.db", "state/kept")


class Project:
    """One folder with everything in it."""

    def __init__(self) -> None:
        self.root = Path(os.path.realpath(tempfile.mkdtemp(prefix="plugbay-protected-")))
        self.root.chmod(0o755)
        self.data = self.root / "data"
        self.data.mkdir()
        (self.root / "state").mkdir()
        for name in (*KEPT, "note"):
            (self.root / name).write_text(f"canary of {name}\n")
        settings = '[host]\nstate_dir = "state"\nlog_dir = "logs"\n[project]\nroot = "."\n'
        times = f"timeouts = {{ launch = {PATIENCE}, handshake = {PATIENCE}, call = {PATIENCE} }}\n"
        sections = "".join(f"[plugins.{name}]\n{times}" for name in ("spy", "reads", "writes", "around", "asks"))
        self.config = self.root / "plugbay.toml"
        self.config.write_text(f"{settings}{sections}")
        plugins = self.root / "plugins"
        write_kaged_plugin(plugins, "spy", LOOKS)
        sandbox = "[plugin.sandbox]\nenabled = true\n"
        wanted = {
            "reads": f'fs_read_paths = ["{self.data}/plugbay.db"]\n',
            "writes": f'fs_write_paths = ["{plugins}"]\n',
            "around": f'fs_read_paths = ["{self.root}"]\n',
        }
        for name, paths in wanted.items():
            write_nexo_plugin(plugins, name, LOOKS, tools=["look"], more=sandbox + paths)
        write_ainb_plugin(plugins, "asks", ASKS, namespaces=["asks"], capabilities={"read_paths": [str(self.root)]})

    def host(self, protects: bool) -> Host:
        data = Entry(str(self.data), "the server's data folder")
        host = Host.load(self.root / "plugins", config=self.config, grant_all=True, eager=False, protected=[data])
        if not protects:
            setattr(host.protection, "of", _nothing)  # noqa: B010
        return host


def _nothing(spec: PluginSpec) -> Protected:
    return Protected(own=(str(spec.root),))


async def attacks(project: Project, protects: bool) -> dict[str, Any]:
    root = project.root
    if os.geteuid() == 0:  # not file rights protect it, and a plugin that may write may do so
        for path in (root, *root.rglob("*")):
            os.chmod(path, 0o777)
    async with project.host(protects) as host:
        kept = [str(root / name) for name in KEPT]
        neighbour, plain = str(root / "plugins/reads/child.py"), str(root / "note")
        said: dict[str, Any] = {}
        said["project"] = await _tried(
            host.call("spy/echo", {"paths": [*kept, str(root / "data"), neighbour, plain]}, timeout=2 * PATIENCE)
        )
        calls = {
            "reads": ([kept[3]], []),
            "writes": ([], [str(root / "plugins/spy/child.py"), str(root / "plugins/new")]),
            "around": ([*kept, neighbour, plain], []),
        }
        for name, (paths, changes) in calls.items():
            look = host.call(f"{name}/{name}_look", {"paths": paths, "changes": changes}, timeout=2 * PATIENCE)
            said[name] = await _tried(look)
        said["statuses"] = {status.spec.id: str(status.confinement) for status in host.plugins()}
        for asked in (kept[0], kept[1], plain):
            said[f"asks {asked.removeprefix(f'{root}/')}"] = (
                await host.run_cli("asks", [asked], timeout=2 * PATIENCE)
            ).stdout.decode()
        said["notes"] = [note.text for note in host.journal.recent("asks")]
        said["replaced"] = await _replace(host, project.config)
        said["spy's notes"] = [note.text for note in host.journal.recent("spy")]
    found: dict[str, Any] = json.loads(json.dumps(said).replace(str(root), "ROOT"))
    return found


async def _replace(host: Host, config: Path) -> list[str]:
    """What a running plugin sees of plugbay.toml from the moment at which an editor saves it, until it sees nothing."""
    saved = config.with_name("saved")
    saved.write_text("canary of what was saved\n")
    saved.chmod(0o644)
    saved.rename(config)
    seen: list[str] = []
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while asyncio.get_running_loop().time() < deadline and (not seen or "Permission" not in seen[-1]):
        answer = await _tried(host.call("spy/echo", {"paths": [str(config)]}, timeout=2 * PATIENCE))
        seen.append(str(answer.get(str(config), answer)))
        await asyncio.sleep(0.1)
        if seen[-1].startswith("canary") and host.protection.of is _nothing:
            break
    return list(dict.fromkeys(seen))


async def _tried(call: Any) -> Any:
    try:
        return await call
    except CallFailed as error:
        return {"refused": error.failure.message, "hint": error.failure.detail.get("hint", "")}


async def main() -> None:
    found = {}
    for name, protects in {"protected": True, "open": False}.items():
        project = Project()
        try:
            found[name] = await attacks(project, protects)
        finally:
            shutil.rmtree(project.root, ignore_errors=True)
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
