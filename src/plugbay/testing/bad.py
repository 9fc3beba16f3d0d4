"""`bad_plugin`: a bad plugin of the conformance kit in a folder, ready for a host.

The catalogue of `plugbay.conformance` describes each one and the expected outcome.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plugbay.conformance.bad_plugins.catalogue import FOLDER, SETUPS, Entry, load_catalog, prepare


@dataclass(frozen=True, slots=True)
class BadPlugin:
    """A plugin that breaks one rule: `Host.load(bad.path)`."""

    path: Path
    id: str
    what: str
    """What it does wrong."""
    way: str
    """How it is called: `call`, `fire`, `compact`, `run`, `render` or `press`."""
    tool: str
    """The export to call."""
    input: Any
    expect: str
    """The expected outcome: a failure code, or `succeeded`."""


def bad_plugin(name: str, folder: Path) -> BadPlugin:
    """Create the bad plugin `contract/name` in a new folder below `folder`."""
    contract, _, called = name.partition("/")
    if contract not in SETUPS:
        raise ValueError(f"{name!r} is no bad plugin: write contract/name, with one of {', '.join(SETUPS)}")
    entries = {entry.name: entry for entry in load_catalog(contract)}
    if called not in entries:
        near = difflib.get_close_matches(called, entries, n=3) or list(entries)[:12]
        raise ValueError(f"{contract} has no bad plugin {called!r}; there is {', '.join(near)}")
    entry: Entry = entries[called]
    root = prepare(entry, folder, FOLDER / contract)
    expect = str(entry.expect.code or entry.expect.outcome)
    return BadPlugin(root, entry.plugin_id, entry.what, entry.way, entry.tool, entry.given(), expect)
