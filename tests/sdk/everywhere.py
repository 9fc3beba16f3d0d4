"""One source under every contract, through the real host, and how each of its calls ended.

Where contracts say the same thing in different words, this is where that is known: `Reach` has one class for each. A
seventh contract is one class more.
"""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plugbay import CallFailed, SyncHost
from plugbay.sdk import Plugin
from plugbay.sdk.contracts.ainb import ainb_name, tool_namespaces
from plugbay.sdk.contracts.mcp import server_name, tool_name
from plugbay.sdk.contracts.nexo import nexo_id, nexo_tool_name
from plugbay.sdk.contracts.vai import export_id, package_id
from plugbay.sdk.io.detect import kaged_name
from plugbay.sdk.manifests import (
    ainb_manifest,
    ainb_program,
    kaged_manifest,
    mcp_manifest,
    nexo_manifest,
    rune_manifest,
    vai_files,
)
from tests.support.patience import PATIENCE

COMMAND = ["python3", "plugin.py"]


@dataclass(frozen=True)
class Outcome:
    """How a call ended: with a value, or with a code and a message."""

    value: Any = None
    code: str = ""
    message: str = ""


class Reach:
    """How a tool is called under one contract, and how its answer reads there. Here: as it is."""

    contract = "rune"
    manifest = "rterm-plugin.json"

    def __init__(self, host: SyncHost, plugin: Plugin) -> None:
        self.host = host
        self.plugin = plugin

    def name(self, tool: str) -> str:
        return f"{self.plugin.id}/{tool}"

    def call(self, tool: str, given: Any, timeout: float = PATIENCE) -> Outcome:
        try:
            return Outcome(self.read(self.host.call(self.name(tool), given, timeout=timeout)))
        except CallFailed as error:
            return Outcome(code=error.failure.code, message=self.text(error.failure.message))

    def read(self, value: Any) -> Any:
        return value

    def text(self, message: str) -> str:
        """A message in the words of all. Here, a place in a result is seen from the top of the frame."""
        return message.replace("the result cannot be sent: at /output", "the result cannot be sent: at ")

    @classmethod
    def files(cls, plugin: Plugin) -> dict[str, str]:
        """What has to lie beside the source."""
        return {cls.manifest: rune_manifest(plugin, COMMAND)}


class NexoReach(Reach):
    """Tools have the name of their plugin before their own, and errors the contract's words before their message."""

    contract = "nexo"
    words = re.compile(r"(argument invalid|unavailable(; retry after \d+s)?): ")
    manifest = "nexo-plugin.toml"

    def name(self, tool: str) -> str:
        id = nexo_id(self.plugin.id)
        return f"{id}/{nexo_tool_name(id, tool)}"

    def text(self, message: str) -> str:
        own = message.replace("it cannot be sent as JSON: ", "").replace(f"{nexo_id(self.plugin.id)}_", "")
        return self.words.sub("", own, count=1) if self.words.match(own) else own

    @classmethod
    def files(cls, plugin: Plugin) -> dict[str, str]:
        return {cls.manifest: nexo_manifest(plugin, COMMAND)}


class KagedReach(Reach):
    """A bug is announced as an internal error; the contract asks for that."""

    contract = "kaged"
    manifest = "kaged-plugin.yaml"

    def name(self, tool: str) -> str:
        return f"{kaged_name(self.plugin.id)}/{tool}"

    def text(self, message: str) -> str:
        return message.removeprefix("Internal error: ").replace("it cannot be sent as JSON: ", "")

    @classmethod
    def files(cls, plugin: Plugin) -> dict[str, str]:
        return {cls.manifest: kaged_manifest(plugin, COMMAND)}


class AinbReach(Reach):
    """There are no tools: they are behind a command line, with JSON on stdout and `code: message` on stderr."""

    contract = "ainb"
    manifest = "manifest.toml"

    def call(self, tool: str, given: Any, timeout: float = PATIENCE) -> Outcome:
        try:
            namespace = tool_namespaces(self.plugin)[0]
            output = self.host.run_cli(namespace, [tool, json.dumps(given)], timeout=timeout)
        except CallFailed as error:
            return Outcome(code=error.failure.code, message=error.failure.message)
        if output.exit_code == 0:
            return Outcome(json.loads(output.stdout))
        code, _, message = output.stderr.decode().rstrip("\n").partition(": ")
        return Outcome(code=code, message=message)

    @classmethod
    def files(cls, plugin: Plugin) -> dict[str, str]:
        return {cls.manifest: ainb_manifest(plugin), ainb_name(plugin.id): ainb_program()}


class VaiReach(Reach):
    """A result is content for a model with the value beside it, which is an object; what is none is in one."""

    contract = "vai"
    manifest = "vai-plugin.toml"

    def name(self, tool: str) -> str:
        return f"{package_id(self.plugin.id)}/{export_id(tool)}"

    def read(self, value: Any) -> Any:
        output = value.get("structured_output")
        if output is None:
            return "".join(item["text"] for item in value["content"])
        return output["result"] if output.keys() == {"result"} else output

    @classmethod
    def files(cls, plugin: Plugin) -> dict[str, str]:
        return vai_files(plugin)


class McpReach(Reach):
    """As under vai, in other words."""

    contract = "mcp"
    manifest = ".mcp.json"

    def name(self, tool: str) -> str:
        return f"{server_name(self.plugin.id)}/{tool_name(tool)}"

    def read(self, value: Any) -> Any:
        output = value.get("structuredContent")
        if output is None:
            return "".join(item["text"] for item in value["content"])
        return output["result"] if output.keys() == {"result"} else output

    def text(self, message: str) -> str:
        return message.replace("it cannot be sent as JSON: ", "")

    @classmethod
    def files(cls, plugin: Plugin) -> dict[str, str]:
        return {cls.manifest: mcp_manifest(plugin, COMMAND)}


REACHES: dict[str, type[Reach]] = {
    reach.contract: reach for reach in (Reach, NexoReach, KagedReach, AinbReach, VaiReach, McpReach)
}
CONTRACTS = tuple(REACHES)


def written(tmp_path: Path, source: str) -> Path:
    """A folder with a source, which declares `plugin`, and a manifest of every contract."""
    (tmp_path / "plugin.py").write_text(source)
    plugin = loaded(tmp_path)
    folder = tmp_path / ainb_name(plugin.id)
    folder.mkdir()
    (tmp_path / "plugin.py").rename(folder / "plugin.py")
    for reach in REACHES.values():
        for path, text in reach.files(plugin).items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text)
            (folder / path).chmod(0o755)
    return folder


def loaded(folder: Path) -> Plugin:
    """What a source declares."""
    plugin = runpy.run_path(str(folder / "plugin.py"))["plugin"]
    assert isinstance(plugin, Plugin)
    return plugin


@contextmanager
def hosted(folder: Path, contract: str, **options: Any) -> Iterator[Reach]:
    """The source in a folder, hosted under one contract."""
    reach, plugin = REACHES[contract], loaded(folder)
    usual = {"grant_all": True, "unconfined": True, "eager": False}
    with SyncHost.load(folder / reach.manifest, **{**usual, **options}) as host:
        yield reach(host, plugin)
