"""`python -m plugbay.sdk.describe FILE`: run a plugin's source up to `plugin.run()` and print its declarations as JSON.

For tools that must not load an author's code into their own process. FILE runs as a host would run it, with its prints
on stderr. The one JSON object on stdout has, for each contract, the files of its manifest or the reason why there is
none.
"""

from __future__ import annotations

import os
import sys

from plugbay.sdk.contract_support import CONTRACTS, unsupported_declarations, unsupported_reason
from plugbay.sdk.contracts.ainb import ainb_name
from plugbay.sdk.contracts.ainb import supported_capabilities as ainb_capabilities
from plugbay.sdk.contracts.kaged import supported_capabilities as kaged_capabilities
from plugbay.sdk.io.detect import AINB, KAGED, MCP, NEXO, RUNE, VAI
from plugbay.sdk.manifests import (
    NEXO_SERVICES,
    ainb_manifest,
    ainb_program,
    kaged_manifest,
    mcp_manifest,
    nexo_manifest,
    permissions_of,
    rune_manifest,
    vai_files,
)
from plugbay.sdk.plugin import Plugin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn

PYTHON = "python3"
"""The interpreter in manifests: whichever the host finds first."""


class Declared(BaseException):
    """`run()` was called: everything is declared. No author's `except Exception` is in the way of it."""

    def __init__(self, plugin: Plugin) -> None:
        super().__init__(plugin.id)
        self.plugin = plugin


def load(source: str) -> tuple[Plugin, bool]:
    """The plugin in this file, and whether it is served; raises LookupError without a plugin."""
    import runpy

    def stop(self: Plugin) -> NoReturn:
        raise Declared(self)

    run, argv, path = Plugin.run, sys.argv, list(sys.path)
    Plugin.run = stop  # type: ignore[method-assign]
    sys.argv = [source]
    sys.path.insert(0, os.path.dirname(os.path.abspath(source)))
    try:
        found = [value for value in runpy.run_path(source, run_name="__main__").values() if isinstance(value, Plugin)]
    except Declared as reached:
        return reached.plugin, True
    finally:
        Plugin.run = run  # type: ignore[method-assign]
        sys.argv, sys.path[:] = argv, path
    distinct = list({id(plugin): plugin for plugin in found}.values())
    if len(distinct) == 1:
        return distinct[0], False
    what = f"{len(distinct)} plugins, and runs none of them" if distinct else "no plugbay.sdk.Plugin"
    raise LookupError(f"{os.path.basename(source)} has {what}")


def describe_plugin(plugin: Plugin, source: str, served: bool = True) -> dict[str, Any]:
    """Everything there is to say about the manifests of a plugin whose source file is called `source`."""
    return {
        "id": plugin.id,
        "version": plugin.version,
        "unchecked": [f"{tool.name}: {note}" for tool in plugin.tools.values() for note in tool.notes],
        "misfits": [f"{tool.name}: {misfit}" for tool in plugin.tools.values() for misfit in tool.misfits],
        "served": served,
        "contracts": {contract: _contract(plugin, contract, source) for contract in CONTRACTS},
    }


def _contract(plugin: Plugin, contract: str, source: str) -> dict[str, Any]:
    try:
        reason = unsupported_reason(plugin, contract) or _own_manifest(plugin, contract)
        files = {} if reason else _FILES[contract](plugin, source)
    except (TypeError, ValueError) as error:  # two names that are one there, a schema that JSON cannot hold
        reason, files = str(error), {}
    return {
        "why_not": reason,
        "folder": ainb_name(plugin.id) if contract == AINB else None,
        "files": [{"path": path, "text": text} for path, text in files.items()],
        "left_out": [] if reason else unsupported_declarations(plugin, contract),
        "defaults": [] if reason else _defaults(plugin, contract),
    }


def _own_manifest(plugin: Plugin, contract: str) -> str:
    reads = contract == NEXO and plugin.manifest is not None
    return "its source reads nexo-plugin.toml, so that file is written by hand" if reads else ""


def _command(source: str) -> Sequence[str]:
    return [PYTHON, source]


_FILES: Mapping[str, Callable[[Plugin, str], dict[str, str]]] = {
    RUNE: lambda plugin, source: {"rterm-plugin.json": rune_manifest(plugin, _command(source))},
    NEXO: lambda plugin, source: {"nexo-plugin.toml": nexo_manifest(plugin, _command(source))},
    KAGED: lambda plugin, source: {"kaged-plugin.yaml": kaged_manifest(plugin, _command(source))},
    AINB: lambda plugin, source: {
        "manifest.toml": ainb_manifest(plugin),
        ainb_name(plugin.id): ainb_program(source, PYTHON),
    },
    VAI: lambda plugin, source: vai_files(plugin, source, PYTHON),
    MCP: lambda plugin, source: {".mcp.json": mcp_manifest(plugin, _command(source))},
}
"""By contract, the text of every file by its path; the manifest is the first."""


def _defaults(plugin: Plugin, contract: str) -> list[str]:
    """Defaults of the manifest that the source does not set: the author may want other values."""
    unsaid = ", ".join(tool.name for tool in plugin.tools.values() if tool.effect == "unknown")
    found = {
        RUNE: [f"approval_tier moderate for {unsaid}, because effect= is not set"] if unsaid else [],
        NEXO: ["min_nexo_version >=0.1.0, any host"],
        MCP: [f"no hints about what {unsaid} may do, because effect= is not set"] if unsaid else [],
        VAI: [
            *([f"effect_class unknown for {unsaid}, because effect= is not set"] if unsaid else []),
            *(["publisher local, because the id has none, such as acme/…"] if "/" not in plugin.id else []),
        ],
    }
    return [*found.get(contract, []), *_not_asked_for(plugin, contract)]


_ASKS: Mapping[str, Callable[[str], bool]] = {
    NEXO: NEXO_SERVICES.__contains__,
    KAGED: lambda capability: bool(kaged_capabilities([capability])),
    AINB: lambda capability: bool(ainb_capabilities([capability])),
    VAI: lambda capability: permissions_of([capability]) != permissions_of([]),
}
"""By contract, whether it has a capability of this name. Hosts of rune accept any, and those of MCP have none."""


def _not_asked_for(plugin: Plugin, contract: str) -> list[str]:
    """Every contract has its own names of capabilities; those of one mean nothing to another."""
    asks = _ASKS.get(contract)
    unsaid = [] if asks is None else [name for name in plugin.capabilities if not asks(name)]
    return [f"left out: {', '.join(unsaid)}, which {contract} does not have"] if unsaid else []


def main(source: str) -> None:
    """Print the declarations of `source`; its own output, and that of its children, goes to stderr."""
    import json

    answer = os.dup(1)
    os.set_inheritable(answer, False)
    os.dup2(2, 1)
    sys.stdout = sys.stderr  # a buffer of its own would come after the traceback, or be lost
    plugin, served = load(source)
    words = json.dumps(describe_plugin(plugin, os.path.basename(source), served))
    with os.fdopen(answer, "w", encoding="utf-8") as stream:
        stream.write(words)
    sys.stderr.flush()
    os._exit(0)  # threads that the source has started are not waited for


if __name__ == "__main__":
    main(sys.argv[1])
