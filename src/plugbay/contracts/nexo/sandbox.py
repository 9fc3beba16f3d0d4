"""`[plugin.sandbox]`: what a manifest may ask to see of the machine it runs on.

Owns the list of forbidden paths and the rules of the section. Textual: a path is normalised and checked as written.
Symbolic links are followed when the plugin starts, and the check is repeated then.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from plugbay.contracts.document import KeyPath
from plugbay.contracts.draft import Draft
from plugbay.contracts.nexo.sections import Sandbox
from plugbay.model.spec import STATE_DIR, SandboxRequest
from plugbay.model.users import NOBODY

REQUIRE = "NEXO_PLUGIN_SANDBOX_REQUIRE"
"""Set by an operator to forbid unconfined plugins."""

HOST_NET_ALLOW = "NEXO_PLUGIN_SANDBOX_HOST_NET_ALLOW"
"""Set by an operator to let manifests request the host's network."""

DENIED = tuple(
    "/etc/shadow /etc/sudoers /etc/sudoers.d /proc/sys /proc/kcore /proc/kallsyms /sys/firmware /sys/kernel "
    "/dev/mem /dev/kmem /dev/port /var/run/docker.sock /run/docker.sock /private/var/run/docker.sock "
    "/root /boot".split()
)
"""Paths that give the machine away. Nothing may be equal to one, lie within one, or contain one."""

DENIED_AT_HOME = tuple(
    ".aws .ssh .gnupg .netrc .docker .kube .cargo/credentials .cargo/credentials.toml .npmrc .config/gh "
    ".config/git".split()
)
"""The same for credentials, in the home of the host's user and in every folder of /home."""

_Violation = tuple[str, str]
"""The name of a broken rule, and what is wrong."""

_TRUTHY = frozenset("1 true TRUE yes YES".split())


def check(draft: Draft, environ: Mapping[str, str]) -> None:
    """The section's rules. A sandbox that is not enabled has none, but an operator may insist on one."""
    if draft.value("sandbox", "enabled") is not True:
        if environ.get(REQUIRE) in _TRUTHY:
            text = f"this host runs no plugin without a sandbox ({REQUIRE}); write enabled = true"
            draft.error("sandbox_required_but_disabled", ("sandbox", "enabled"), text)
        return
    if draft.text("sandbox", "network") == "host" and environ.get(HOST_NET_ALLOW) not in _TRUTHY:
        text = f"the network of the host is allowed only if the operator sets {HOST_NET_ALLOW}=1"
        draft.error("sandbox_host_network_without_capability", ("sandbox", "network"), text)
    for key, writable in (("fs_read_paths", False), ("fs_write_paths", True)):
        for where, path in draft.texts("sandbox", key):
            _report(draft, where, _path_violation(path, environ, writable=writable))
    if draft.value("sandbox", "drop_user") is False:
        text = "it keeps its user id; the rights of the host's user are dropped anyway"
        draft.warn("sandbox_user_dropped", ("sandbox", "drop_user"), text)
    command = draft.text("entrypoint", "command") or ""
    if command.startswith("/"):
        # The sandbox shows the plugin the folder of its own program, so that is an allowlist too.
        folder = posixpath.dirname(normalised(command))
        _report(draft, ("entrypoint", "command"), _denied_violation(folder, environ))


def request(section: Sandbox, environ: Mapping[str, str]) -> SandboxRequest | None:
    """The policy of a section without problems. `drop_user` chooses the user number inside, never the rights."""
    if not section.enabled:
        return None
    return SandboxRequest(
        read=_distinct(section.fs_read_paths),
        write=_distinct(section.fs_write_paths),
        host_network=section.network == "host",
        never=DENIED,
        insists=environ.get(REQUIRE) in _TRUTHY,
        user=NOBODY if section.drop_user else None,
    )


def normalised(path: str) -> str:
    """`path` without `.`, `..`, repeated slashes and a slash at the end; a prefix `${state_dir}` stays."""
    prefix = STATE_DIR if path.startswith(STATE_DIR) else ""
    # Exactly one slash in front: POSIX, and so normpath, lets two mean something else.
    clean = posixpath.normpath("/" + path.removeprefix(prefix).lstrip("/"))
    return prefix + clean if clean != "/" or not prefix else prefix


def denied(path: str, environ: Mapping[str, str]) -> str | None:
    """The entry that forbids the normalised absolute `path`, if one does."""
    entries = (*DENIED, *(f"{home}/{name}" for home in _homes(path, environ) for name in DENIED_AT_HOME))
    return next((entry for entry in entries if _within(path, entry) or _within(entry, path)), None)


def _report(draft: Draft, where: KeyPath, violation: _Violation | None) -> None:
    if violation is not None:
        draft.error(violation[0], where, violation[1])


def _path_violation(path: str, environ: Mapping[str, str], *, writable: bool) -> _Violation | None:
    """The first rule that `path` breaks."""
    if "\0" in path:
        return "invalid_value", "must not contain a NUL character"
    if STATE_DIR in path:
        problem = _state_dir_problem(path) if writable else f"{STATE_DIR} belongs in fs_write_paths only"
        return ("sandbox_invalid_state_dir_interpolation", problem) if problem else None
    if not path.startswith("/"):
        return "sandbox_relative_path", f"{path!r} must begin with '/'"
    return _denied_violation(normalised(path), environ)


def _state_dir_problem(path: str) -> str | None:
    rest = path.removeprefix(STATE_DIR)
    if STATE_DIR in rest or (rest and not rest.startswith("/")):
        return f"{STATE_DIR} stands at the beginning of a path, once, alone or before a '/'"
    if ".." in rest.split("/"):
        return f"must not lead out of {STATE_DIR} with '..'"
    return None


def _denied_violation(path: str, environ: Mapping[str, str]) -> _Violation | None:
    entry = denied(path, environ)
    if entry is None:
        return None
    text = f"{path!r} must not be visible to a plugin: it is, contains or is inside {entry}"
    return "sandbox_allowlist_touches_denylist", text


def _homes(path: str, environ: Mapping[str, str]) -> list[str]:
    """The home folders that matter to `path`: the host's own, and the one of /home that `path` leads into, or any."""
    parts = path.split("/")
    user = parts[2] if len(parts) > 2 and parts[1] == "home" else "*"
    own = environ.get("HOME", "")
    return [f"/home/{user}", *([normalised(own).rstrip("/")] if own.startswith("/") else [])]


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _distinct(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(normalised(path) for path in paths))
