"""The rules of an ainb manifest that its shape cannot say.

Owns the sense of every section but `capabilities` and `config`. Each rule reads from the draft on its own, so one
mistake never hides another. Values only: the name of the plugin's folder comes in as one, and whether the program is
in it is asked elsewhere.
"""

from __future__ import annotations

import re

from plugbay.contracts.ainb.capabilities import admits
from plugbay.contracts.ainb.messages import ABI_VERSION
from plugbay.contracts.ainb.sections import Lifecycle, Manifest, Plugin, Provides, Subscribes
from plugbay.contracts.draft import Draft
from plugbay.contracts.validation import suggestion
from plugbay.model.ids import id_problem
from plugbay.model.topics import HOST_ONLY

RESERVED = "host"
"""Whom snapshots come from that the host publishes itself."""

LEFTOVERS = {
    "plugin": ("ainb_min_version", "author", "license"),
    "provides": ("statusline", "preferred_min_size"),
}
"""Keys of older contracts that manifests still carry; nothing is done with them, and nothing is said."""

_NUMBER = r"(?:0|[1-9][0-9]*)"
_TAG = rf"(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}){{2}}(?:-{_TAG}(?:\.{_TAG})*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?")

_LISTS = (
    ("provides", "screens"),
    ("provides", "commands"),
    ("provides", "cli_namespaces"),
    ("provides", "snapshots"),
    ("subscribes", "snapshots"),
    ("subscribes", "latest_state"),
)


def check(draft: Draft, folder: str) -> None:
    """Every rule, on whatever is there. `folder` is the name of the folder the plugin lies in."""
    _name(draft, folder)
    _versions(draft)
    _names(draft)
    _namespaces(draft)
    _latest_state(draft)
    _bus(draft)
    _ignored(draft)


def _name(draft: Draft, folder: str) -> None:
    name, path = draft.text("plugin", "name"), ("plugin", "name")
    if name is None:
        return
    # The name is joined to a folder to find the program.
    problem = id_problem(name) or ("must not begin with a dot" if name.startswith(".") else None)
    if problem:
        draft.error("invalid_name", path, f"{problem}, got {name!r:.60}")
    elif name == RESERVED:
        draft.error("reserved_name", path, f"{name!r} is what the host calls itself")
    elif name != folder:
        text = f"{name!r} lies in a folder called {folder!r}; the plugin, its folder and its program have one name"
        draft.error("name_mismatch", path, text)


def _versions(draft: Draft) -> None:
    version = draft.text("plugin", "version")
    if version is not None and not _SEMVER.fullmatch(version):
        text = f"{version!r:.60} is no semantic version such as 1.2.3"
        draft.error("version_not_semver", ("plugin", "version"), text)
    abi = draft.value("plugin", "abi_version")
    if type(abi) is int and abi >= 0 and abi != ABI_VERSION:
        hint = f"it needs a newer host, or a build for ABI {ABI_VERSION}" if abi > ABI_VERSION else "it must be rebuilt"
        text = f"the plugin speaks ABI {abi} and this host ABI {ABI_VERSION}; {hint}"
        draft.error("abi_unsupported", ("plugin", "abi_version"), text)


def _names(draft: Draft) -> None:
    for where in _LISTS:
        seen: set[str] = set()
        for path, name in draft.texts(*where):
            if not name.strip() or not name.isprintable():
                draft.error("invalid_name", path, f"{name!r:.60} names nothing")
            elif name in seen:
                draft.warn("duplicate", path, f"{name!r} is there twice")
            seen.add(name)


def _namespaces(draft: Draft) -> None:
    for path, name in draft.texts("provides", "cli_namespaces"):
        if name.startswith("-") or len(name.split()) > 1 or name != name.strip():
            draft.error("invalid_name", path, f"{name!r} must be one word of a command line, and no option")


def _latest_state(draft: Draft) -> None:
    subscribed = {topic for _, topic in draft.texts("subscribes", "snapshots")}
    for path, topic in draft.texts("subscribes", "latest_state"):
        if topic not in subscribed:
            draft.error("latest_state_stray", path, f"{topic!r} is not in subscribes.snapshots")


def _bus(draft: Draft) -> None:
    """The contract puts all snapshots behind one capability, and some under which only the host publishes."""
    grants = draft.table("capabilities")
    for section, loss in (("provides", "published"), ("subscribes", "delivered")):
        for path, topic in draft.texts(section, "snapshots"):
            if not admits(grants, topic):
                draft.warn(
                    "needs_event_bus", path, f"{topic!r} is never {loss}: capabilities.event_bus does not cover it"
                )
            elif section == "provides" and topic.startswith(HOST_ONLY):
                draft.warn("host_only_topic", path, f"{topic!r} is never published: only the host does so")


def _ignored(draft: Draft) -> None:
    draft.warn_of_unknown((), draft.table(), tuple(Manifest.model_fields))
    for section, model in (("plugin", Plugin), ("provides", Provides), ("lifecycle", Lifecycle)):
        known = (*model.model_fields, *LEFTOVERS.get(section, ()))
        draft.warn_of_unknown((section,), draft.table(section), known)
    for key in draft.table("subscribes"):
        if key not in Subscribes.model_fields:
            near = suggestion(key, Subscribes.model_fields)
            text = f"not part of the contract, ignored here; newer ainb hosts refuse the manifest for it{near}"
            draft.warn("unknown_key", ("subscribes", key), text)
