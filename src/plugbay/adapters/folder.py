"""The folder of an adapter for a host of its target: manifest, program, pin and README, as texts by path.

The manifest is written by the SDK, in the target's own format, from the pinned exports. `files` is pure; `write` puts
them on disk.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from plugbay.adapters.mapping import AINB, KAGED, MCP, NEXO, RUNE, VAI, Row
from plugbay.adapters.pin import FILE, Pin, PinInvalid, Source, load, to_text
from plugbay.adapters.plugin import make_plugin
from plugbay.host.discovery.folders import MULTI_PLUGIN_MANIFESTS
from plugbay.sdk.contracts.ainb import ainb_name
from plugbay.sdk.contracts.mcp import server_name
from plugbay.sdk.manifests import (
    VAI_PROGRAM,
    ainb_manifest,
    kaged_manifest,
    nexo_manifest,
    rune_manifest,
    schemas_of,
    vai_manifest,
)
from plugbay.sdk.plugin import Plugin

PROGRAM = "adapter"
"""The program in the folder, where the contract does not name it."""

MODULE = "plugbay.adapters"

INSTALL = {
    RUNE: (
        "rune-terminal installs a plugin from a git repository or a zip archive, not from a folder: put the files of "
        "this folder into one, and keep `adapter` executable. Tool names are global there: a tool whose name another "
        "plugin has is refused. Adapt such plugins together, with `--id`: their tools then have the plugin's name, too."
    ),
    NEXO: "Copy this folder into the plugins folder of nexo.",
    KAGED: "Name this folder in the plugins of the kaged daemon.",
    AINB: "Copy this folder, with this name, into the plugins folder of ainb.",
    VAI: "Install this folder as a package; `plugbay pack` makes the archive. The host must let it start programs.",
    MCP: "Copy the entry of .mcp.json into the configuration of an MCP client.",
}


def folder_name(pin: Pin) -> str:
    """The name of the folder; ainb requires the plugin's own."""
    return ainb_name(pin.id) if pin.target == AINB else f"{pin.id.replace('/', '-')}-{pin.target}"


def files(pin: Pin, rows: Iterable[Row], python: str, folder: str) -> dict[str, str]:
    """The text of each file by its path; `python` runs the program, `folder` is where the files will be."""
    plugin = make_plugin(pin, _NoSource())
    texts = _MANIFESTS[pin.target](plugin, python, folder)
    return {**texts, FILE: to_text(pin), "README.md": readme(pin, rows)}


def write(pin: Pin, rows: Iterable[Row], folder: Path) -> list[str]:
    """Write the files into a folder, which may be an older adapter; returns their paths in it."""
    texts = files(pin, rows, sys.executable, str(folder.absolute()))
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
        (folder / path).chmod(0o755 if text.startswith("#!") else 0o644)
    return sorted(texts)


def conflicting(folder: Path, sources: Iterable[Source], words: Iterable[str] = ()) -> str:
    """The path that an adapter in `folder` would replace or change, and would then start; empty when there is none.

    These are the folders of its sources, and of what is behind a source that is an adapter itself. `words` are
    absolute paths in commands of sources.
    """
    at, seen = folder.resolve(), set[Path]()
    waiting = [Path(source.path).resolve() for source in sources if source.path]
    while waiting:
        manifest = waiting.pop()
        home = manifest.parent
        inside = home in at.parents and manifest.name not in MULTI_PLUGIN_MANIFESTS  # a project has other folders
        if at == home or at in home.parents or inside:
            return str(home)
        if home not in seen:
            seen.add(home)
            waiting += _behind(home)
    return next((word for word in words if at in Path(word).resolve().parents), "")


def _behind(folder: Path) -> list[Path]:
    """The manifests of the sources of the adapter in a folder; none if it has no adapter."""
    try:
        return [Path(source.path).resolve() for source in load(str(folder / FILE)).sources if source.path]
    except PinInvalid:
        return []


class _NoSource:
    """Stands for the source of a plugin that is only described."""

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(name)


def _rune(plugin: Plugin, python: str, folder: str) -> dict[str, str]:
    return {"rterm-plugin.json": rune_manifest(plugin, [f"./{PROGRAM}"]), PROGRAM: program(python)}


def _nexo(plugin: Plugin, python: str, folder: str) -> dict[str, str]:
    return {"nexo-plugin.toml": nexo_manifest(plugin, [f"./{PROGRAM}"]), PROGRAM: program(python)}


def _kaged(plugin: Plugin, python: str, folder: str) -> dict[str, str]:
    return {"kaged-plugin.yaml": kaged_manifest(plugin, [f"./{PROGRAM}"]), PROGRAM: program(python)}


def _ainb(plugin: Plugin, python: str, folder: str) -> dict[str, str]:
    return {"manifest.toml": ainb_manifest(plugin), ainb_name(plugin.id): program(python)}


def _vai(plugin: Plugin, python: str, folder: str) -> dict[str, str]:
    import json

    schemas = {path: f"{json.dumps(schema, indent=2)}\n" for path, schema in schemas_of(plugin).items()}
    return {"vai-plugin.toml": vai_manifest(plugin), VAI_PROGRAM: program(python, "../"), **schemas}


def _mcp(plugin: Plugin, python: str, folder: str) -> dict[str, str]:
    """Clients copy the entry, so its paths are absolute."""
    import json

    entry = {"command": python, "args": [*_module(), f"{folder}/{FILE}"]}
    text = json.dumps({"mcpServers": {server_name(plugin.id): entry}}, indent=2, ensure_ascii=False)
    return {".mcp.json": f"{text}\n", PROGRAM: program(python)}


_MANIFESTS = {RUNE: _rune, NEXO: _nexo, KAGED: _kaged, AINB: _ainb, VAI: _vai, MCP: _mcp}


def program(python: str, up: str = "") -> str:
    """The text of the program: it runs the adapter with the pin of its folder, `up` from where it lies."""
    words = " ".join(map(shlex.quote, [python, *_module()]))
    here = "case $0 in */*) here=${0%/*} ;; *) here=. ;; esac"  # `sh adapter` has no path
    return f'#!/bin/sh\n{here}\nexec {words} "$here/{up}{FILE}"\n'


def _module() -> Sequence[str]:
    """`-P`: nothing is imported from the folder of a project."""
    return ("-P", "-m", MODULE)


def readme(pin: Pin, rows: Iterable[Row]) -> str:
    """The README: what is behind the adapter, how to install it, and what becomes of each export."""
    rows = list(rows)
    sources = [f"- `{source.id}` ({source.contract}), {source.path or 'of plugbay.toml'}" for source in pin.sources]
    names = {row: f"{row.kind} `{row.plugin}/{row.name}`" for row in rows}
    carried = [f"| {names[row]} | {row.form} `{row.served}` | {row.note} |" for row in rows if row.form]
    left = [f"- {names[row]}: {row.note}" for row in rows if not row.form]
    parts = [
        f"# {pin.id}",
        f"An adapter, written by `plugbay adapt`: these plugins for hosts of {pin.target}.",
        "\n".join(sources),
        INSTALL[pin.target],
        f"`{FILE}` has the pinned offer, and the folders and grants of the host behind the adapter. When a source "
        "changes its offer, run `plugbay adapt` again.",
        "\n".join(["| export | here | |", "|---|---|---|", *carried]),
        *(["Left out:", "\n".join(left)] if left else []),
    ]
    return "\n\n".join(parts) + "\n"
