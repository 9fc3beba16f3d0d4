"""`Approvals`: the definitions that an operator approved, for plugins that declare their exports only at run time.

Owns the files `<state>/mcp/<plugin>.json`, with whole definitions and their hashes, and the comparison with what a
plugin offers now. A server that changes the text of a tool after its approval is detected here.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from plugbay.contracts.mcp.messages import LISTS
from plugbay.host.config.settings import file_name
from plugbay.host.disk.durable import replace_at
from plugbay.model.errors import ConfigInvalid, Problem
from plugbay.model.spec import PluginSpec

PARTS = {each.name: each.identity for each in LISTS}
"""The lists of an offer, and the key that identifies a definition in each."""

INSTRUCTIONS = "instructions"
"""The server's instructions for models; they are approved like the definitions in the lists."""

NOUNS = {
    "tools": "tool",
    "resources": "resource",
    "resource_templates": "resource template",
    "prompts": "prompt",
    INSTRUCTIONS: "instructions",
}

FOLDER = "mcp"
VERSION = 1

MAX_BYTES = 64 << 20
"""Bytes of one file: a server lists at most a few messages of 16 MiB each."""

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Offer = Mapping[str, Any]
"""Definitions by part, as the plugin lists them."""


def user_state() -> Path:
    """Where approvals are stored when no state directory is configured."""
    from platformdirs import user_state_path

    return user_state_path("plugbay", appauthor=False)


def canonical(definition: Any) -> bytes:
    """The one JSON form of a definition, whatever the order of its keys."""
    text = json.dumps(definition, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")


def digest(definition: Any) -> str:
    """SHA-256 of the canonical form, in hex."""
    return hashlib.sha256(canonical(definition)).hexdigest()


def launch_digest(spec: PluginSpec) -> str:
    """A digest of the command or URL, the folder and the variables as declared, with references unresolved.

    A changed file of servers must not run another command under an existing approval.
    """
    program = [spec.url] if spec.url else list(spec.command)
    return digest([program, os.path.realpath(spec.cwd or spec.root), sorted(map(list, spec.env))])


def definitions(offer: Offer) -> dict[tuple[str, str], dict[str, Any]]:
    """Every definition of an offer by its part and its own name; of two with one name the first counts."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for part, key in PARTS.items():
        for definition in offer.get(part) or ():
            found.setdefault((part, str(definition.get(key))), definition)
    return found


class Change(msgspec.Struct, frozen=True):
    """One definition that differs from the approved one."""

    part: str
    name: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None

    @property
    def word(self) -> str:
        """`new`, `gone` or `changed`."""
        return "new" if self.before is None else "gone" if self.after is None else "changed"

    @property
    def fields(self) -> list[str]:
        """The fields that differ, of a definition that was changed."""
        before, after = self.before or {}, self.after or {}
        names = dict.fromkeys((*before, *after)) if self.word == "changed" else ()
        return [name for name in names if _is_different(before, after, name)]

    def to_json(self) -> dict[str, Any]:
        """The public shape, as in `plugbay mcp diff --json`."""
        return {
            "change": self.word,
            "kind": NOUNS[self.part],
            "name": self.name,
            "fields": self.fields,
            "approved": self.before,
            "offered": self.after,
        }

    def __str__(self) -> str:
        what = f" ({', '.join(self.fields)})" if self.fields else ""
        return f"{self.word} {NOUNS[self.part]} {self.name!r}{what}"


def changes(approved: Offer, offered: Offer) -> list[Change]:
    """The differences between the approved definitions and those offered now."""
    before, after = definitions(approved), definitions(offered)
    return [
        Change(*key, before.get(key), after.get(key))
        for key in dict.fromkeys((*before, *after))
        if key not in before or key not in after or canonical(before[key]) != canonical(after[key])
    ]


def instruction_changes(approved: Mapping[str, Any], offered: Mapping[str, Any]) -> list[Change]:
    """The change of the server's instructions, if they differ from the approved ones."""
    before, after = ({"text": text} if (text := server.get(INSTRUCTIONS)) else None for server in (approved, offered))
    return [] if before == after else [Change(INSTRUCTIONS, "server", before, after)]


class Approval(msgspec.Struct, frozen=True):
    """The approved definitions of one plugin, and of which program they were."""

    offer: Offer
    era: str = ""
    binary: str = ""
    """The identity of the program, as in `protocol_cache`."""
    server: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The server's own name, version and instructions."""
    approved_at: str = ""
    launch: str = ""
    """The `launch_digest` of the declaration; empty when unknown."""

    def to_json(self, plugin_id: str) -> dict[str, Any]:
        """The shape of the file."""
        listed = {part: [dict(item) for item in self.offer.get(part) or ()] for part in PARTS}
        return {
            "version": VERSION,
            "plugin": plugin_id,
            "approved_at": self.approved_at,
            "era": self.era,
            "binary": self.binary,
            "launch": self.launch,
            "server": dict(self.server),
            "definitions": {
                part: [{"sha256": digest(item), "definition": item} for item in items] for part, items in listed.items()
            },
        }


class Approvals:
    """The approvals in a state folder."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / FOLDER

    def path(self, plugin_id: str) -> Path:
        """The file of this plugin's approval, which may not exist."""
        return self._folder / file_name(plugin_id)

    def stamp(self, plugin_id: str) -> tuple[int, int, int] | None:
        """A value that changes with the approval; None when there is no readable file."""
        try:
            status = os.lstat(self.path(plugin_id))
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def load(self, plugin_id: str) -> Approval | None:
        """The approval; None when there is none. Raises `ConfigInvalid` for a file that cannot be used."""
        path = self.path(plugin_id)
        try:
            data = _read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _invalid(path, "unreadable", f"cannot be read: {error.strerror}") from error
        try:
            # Only plugbay writes these files, so a parser that reports lines, at ten times the cost, is not needed.
            return parse_approval(path, json.loads(data))
        except (ValueError, RecursionError) as error:
            raise _invalid(path, "parse_error", f"is not JSON ({error}); approve the plugin again") from None

    def save(self, plugin_id: str, approval: Approval) -> None:
        """Store an approval in place of the previous one; raises `ConfigInvalid`."""
        path = self.path(plugin_id)
        data = json.dumps(approval.to_json(plugin_id), indent=1, ensure_ascii=False).encode("utf-8", "backslashreplace")
        if len(data) >= MAX_BYTES:
            raise _invalid(path, "unwritable", f"its definitions have {len(data):,} bytes; at most {MAX_BYTES:,}")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            at = os.open(self._folder, _FOLDER_FLAGS)
            try:
                replace_at(at, path.name, data + b"\n", 0o600)
            finally:
                os.close(at)
        except OSError as error:
            raise _invalid(path, "unwritable", f"cannot be written: {error.strerror}") from error

    def forget(self, plugin_id: str) -> bool:
        """Remove the approval; False when there was none. Raises `ConfigInvalid`."""
        path = self.path(plugin_id)
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _invalid(path, "unwritable", f"cannot be removed: {error.strerror}") from error
        return True


def _read(path: Path) -> bytes:
    with open(os.open(path, _FLAGS), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise _invalid(path, "unreadable", "must be an ordinary file")
        if status.st_mode & 0o022:
            text = f"other users can change the approval (mode {stat.S_IMODE(status.st_mode):o}): chmod 600 {path}"
            raise _invalid(path, "not_private", text)
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _invalid(path, "unreadable", f"has more than {MAX_BYTES:,} bytes")
    return data


def parse_approval(path: Path, value: Any) -> Approval:
    """The approval in a file, if every definition still has its hash; raises `ConfigInvalid`."""
    if not isinstance(value, dict) or value.get("version") != VERSION:
        raise _invalid(path, "invalid_value", f"is not an approval of version {VERSION}; approve the plugin again")
    listed = value.get("definitions")
    offer: dict[str, list[dict[str, Any]]] = {}
    for part, kept in _entries(path, listed):
        if digest(kept["definition"]) != kept["sha256"]:
            raise _invalid(path, "tampered", f"a definition in {part} was changed by hand; approve the plugin again")
        offer.setdefault(part, []).append(kept["definition"])
    texts = {name: str(value.get(name) or "") for name in ("era", "binary", "approved_at", "launch")}
    server = value.get("server")
    return Approval(offer, server=server if isinstance(server, dict) else {}, **texts)


def _entries(path: Path, listed: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(listed, dict) or not all(isinstance(items, list) for items in listed.values()):
        raise _invalid(path, "invalid_type", "definitions must be lists by part; approve the plugin again")
    for part in PARTS:
        for kept in listed.get(part, ()):
            if not isinstance(kept, dict) or not isinstance(kept.get("definition"), dict) or "sha256" not in kept:
                raise _invalid(path, "invalid_type", f"{part} must hold definitions and their hashes")
            yield part, kept


def _is_different(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> bool:
    if name not in before or name not in after:
        return True
    return canonical(before[name]) != canonical(after[name])


def _invalid(path: Path, code: str, text: str) -> ConfigInvalid:
    return ConfigInvalid(str(path), [Problem(code, "", text)])
