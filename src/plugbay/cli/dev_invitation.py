"""The one line that an author types to run a plugin in a terminal and have it attach.

Owns the guess how a plugin is started: with our SDK it connects itself, so that a debugger can stand before it;
anything else is wrapped by `plugbay attach`. Reads the plugin's files, starts nothing.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.sdk.io.stdio import ATTACH

if TYPE_CHECKING:
    from plugbay.model.spec import PluginSpec

MAX_SOURCE = 1 << 20
"""Bytes looked at in a file; a plugin's program is shorter, and a binary is none."""

_SCRIPT = re.compile(r"[\w./-]*\w\.py\b")
_SDK = re.compile(r"^\s*(?:from|import) plugbay\.sdk\b", re.MULTILINE)


def invitation(spec: PluginSpec, address: str, here: Path) -> tuple[str, bool]:
    """What to type in a terminal that stands in the folder `here`; whether the plugin can be talked to there, too."""
    script = next((path for path in _scripts(spec) if _SDK.search(_text(path))), None)
    variable = f"{ATTACH}={shlex.quote(address)}"
    if script is not None:
        return f"{variable} {_python()} -m pdb {shlex.quote(_seen_from(script, here))}", True
    return f"{variable} {_plugbay()} attach -- {shlex.join(spec.command)}", False


def _scripts(spec: PluginSpec) -> Iterator[Path]:
    """The files that may be the plugin's Python: those its command names, those its launcher does, the usual one."""
    for word in spec.command:
        path = spec.root / word
        if path.suffix == ".py":
            yield path
        elif "/" in word:
            yield path
            yield from ((path.parent / name.lstrip("/")) for name in _SCRIPT.findall(_text(path)))
    yield spec.root / "plugin.py"


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_SOURCE).decode("utf-8", "replace")
    except OSError:
        return ""


def _seen_from(path: Path, here: Path) -> str:
    """The shorter of the two ways to say it."""
    real = path.resolve()
    return min(os.path.relpath(real, here.resolve()), str(real), key=len)


def _python() -> str:
    """The Python that has plugbay, by its name where that is enough."""
    named = shutil.which("python3")
    return "python3" if named and os.path.samefile(named, sys.executable) else shlex.quote(sys.executable)


def _plugbay() -> str:
    return "plugbay" if shutil.which("plugbay") else f"{shlex.quote(sys.executable)} -m plugbay"
