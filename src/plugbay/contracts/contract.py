"""`Contract`: everything that hosts and tools need to know of a contract, as one value.

Each folder of a contract has a `contract.py` with its `CONTRACT`, and `registry` lists them. The host decides by these
values, never by the name of a contract. Plugins never import this module: it leads to manifests and schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from plugbay.contracts.base import Machine, Role
from plugbay.contracts.frames import FrameRules, Framing
from plugbay.model.errors import Problem
from plugbay.model.guarded import Guarded
from plugbay.model.spec import Export, PluginSpec, Timeouts

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec

HOST_VERSION = "0.1.0"
"""The version of plugbay, for greetings that contain it. Repeated here because `plugbay` itself imports the host; a
test compares the two."""


class HostSide(Guarded, msgspec.Struct, frozen=True):
    """The host's part of a greeting, beside the spec."""

    HIDDEN = ("secrets",)
    granted: tuple[str, ...] = ()
    nonce: int = 0
    """A random 64-bit number."""
    config: Mapping[str, Any] | None = None
    secrets: Mapping[str, Any] | None = None
    projects: tuple[str, ...] = ()
    storage: bool = False
    """Whether the host stores values for plugins."""
    pid: int = 0
    """The process id of the host; 0: it is not sent."""
    era: str = ""
    """The era of the greeting, where a contract has several; empty: the default era."""


class Site(Protocol):
    """The folder of a plugin and the machine of the host, for manifests that name files. Never raises."""

    @property
    def platform(self) -> tuple[str, str]:
        """Operating system and processor of this machine."""

    def read(self, path: str, limit: int) -> bytes | Problem:
        """A file of the folder; a problem with the code `path_escape`, `file_missing` or `too_large`."""

    def program_problem(self, path: str) -> str | None:
        """Why this file of the folder cannot be started; None when it can."""


Parsed = tuple[PluginSpec | None, list[Problem]]
ParseWithFiles = Callable[[str, Path, Mapping[str, str], Site], Parsed]
Declared = tuple[str, PluginSpec | None, list[Problem]]
"""One of several plugins in a manifest: its name, its spec and its problems."""
ParseSeveral = Callable[[str, Path, Mapping[str, str]], list[Declared]]


class Contract(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One contract; compared by identity."""

    name: str
    title: str
    """The title of the published text."""
    version: str | int
    """The version that a host greets with."""
    machine: Callable[[], type[Machine]]
    """The machine, loaded when it is first asked for: most commands run one plugin, or none."""
    host_machine: Callable[[PluginSpec, HostSide, Codec], Machine]
    """A HOST machine, ready to greet."""

    manifest_files: tuple[str, ...]
    parse_manifest: ParseWithFiles
    """(text, folder, environment of the host, site) → the spec and all problems; no spec when a problem is an error."""
    parse_several: Mapping[str, ParseSeveral] = msgspec.field(default_factory=dict)
    """Manifest files that may declare several plugins → their parser: the name of each plugin, its spec and its
    problems."""
    not_ours: Callable[[str], str | None] | None = None
    """Where other programs have files of that name too: why a text is not a manifest of this contract; None when it is
    one. Such a file is ignored beside the manifest of another contract."""
    program_inside: bool = False
    """The program is a part of the plugin's folder, so a plugin without it is broken."""
    folder_name: Callable[[str], str | None] | None = None
    """Where the name of the folder matters: the name that the text of the manifest requires; None: any."""
    has_references: bool = False
    """Command and environment in a manifest may refer to settings, secrets and variables."""

    timeouts: Timeouts | None = None
    """Timeouts of a plugin whose manifest sets none; None: every manifest sets them."""
    idle_seconds: float | None = None
    """Seconds until an idle plugin is stopped, if its manifest does not say; None: it stays."""

    framing: Callable[[int], Framing]
    """Makes the framing of one direction from the largest number of bytes in a message."""
    max_host_message: int
    max_plugin_message: int
    frame_rules: FrameRules

    runtime_exports: Callable[[Mapping[str, Sequence[Mapping[str, Any]]]], tuple[list[Export], list[str]]] | None = None
    """Where plugins declare exports only at run time: makes exports and warnings from the lists in the greeting."""
    has_eras: bool = False
    """The greeting changed between revisions, so hosts remember which one a program accepts."""

    def framing_of(self, speaker: str) -> Framing:
        """The framing of the messages that one end sends, for one conversation."""
        return self.framing(self.max_host_message if speaker == Role.HOST else self.max_plugin_message)
