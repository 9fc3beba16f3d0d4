"""The permissions of an export: `[exports.permissions]`, its rules, and its texts for the operator.

Owns the enums and the catalogue of scopes. A manifest only requests; grants are decided elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from plugbay.contracts.vai.sections import Part, Permissions
from plugbay.contracts.validation import suggestion
from plugbay.model.spec import Access

NETWORK = ("none", "egress")
FILESYSTEM = ("none", "scratch", "assets_ro")

SCOPES = tuple(
    f"{resource}:{verb}" for resource in ("sessions", "chains", "runs", "compactions") for verb in ("read", "write")
)
"""The scopes of a delegated token."""

CAPABILITY = "network"
"""The capability that an operator grants for `network = "egress"`."""

_ACCESS = {CAPABILITY: "network", "filesystem=scratch": "scratch"}
"""Capabilities that the operating system enforces, and the kind of access of each."""

_SCOPE = re.compile(r"[a-z][a-z0-9_-]*:[a-z][a-z0-9_-]*")
_SLOT = re.compile(r"[a-z][a-z0-9_]{0,63}")


def check(export: Part) -> None:
    """Every rule of the permissions of one export."""
    asked = export.part("permissions")
    asked.one_of("network", NETWORK)
    asked.one_of("filesystem", FILESYSTEM)
    _each(asked, "gateway_api_scopes", "invalid_scope", _scope_problem)
    _each(asked, "secret_slots", "invalid_secret_slot", _slot_problem)
    network = asked.value("network")
    if network in (None, "none") and asked.texts("gateway_api_scopes"):
        text = 'scopes need a network: write network = "egress", or remove the scopes'
        asked.error("scopes_without_network", text, "gateway_api_scopes")


def capabilities(asked: Permissions) -> tuple[str, ...]:
    """The capabilities that an operator can grant, each in one word."""
    words = [CAPABILITY] if asked.network == "egress" else []
    words += [f"filesystem={asked.filesystem}"] if asked.filesystem != "none" else []
    words += [f"scope={scope}" for scope in asked.gateway_api_scopes]
    words += [f"secret={slot}" for slot in asked.secret_slots]
    return tuple(words)


def access(words: tuple[str, ...]) -> tuple[Access, ...]:
    """The access of these capabilities that the operating system enforces. A package can always read its own files."""
    return tuple(Access(_ACCESS[word], capability=word) for word in words if word in _ACCESS)


def _each(asked: Part, key: str, code: str, problem_of: Callable[[str], str | None]) -> None:
    seen: set[str] = set()
    for at, name in asked.texts(key):
        problem = f"{name!r} appears twice" if name in seen else problem_of(name)
        if problem is not None:
            asked.error(code, problem, key, at)
        seen.add(name)


def _scope_problem(scope: str) -> str | None:
    if not _SCOPE.fullmatch(scope):
        return f"{scope!r:.60} must be a resource, ':' and a verb, as in chains:read"
    return None if scope in SCOPES else f"there is no scope {scope!r:.60}{suggestion(scope, SCOPES)}"


def _slot_problem(slot: str) -> str | None:
    if _SLOT.fullmatch(slot):
        return None
    return f"{slot!r:.60} must be a lower-case letter followed by at most 63 lower-case letters, digits or '_'"
