"""How a registry is told who asks: its challenge, and the credentials that `docker login` has kept.

Owns the two files' grammar: `WWW-Authenticate` and Docker's `config.json`. Sends nothing.
"""

from __future__ import annotations

import binascii
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MAX_CONFIG = 1 << 20

_PARAMETER = re.compile(r'([A-Za-z]+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a registry wants to see."""

    scheme: str
    """`basic` or `bearer`."""
    parameters: Mapping[str, str]


def parse_challenge(header: str) -> Challenge:
    """The first challenge in `WWW-Authenticate`."""
    scheme, _, rest = header.strip().partition(" ")
    found = {name.lower(): re.sub(r"\\(.)", r"\1", value) for name, value in _PARAMETER.findall(rest)}
    return Challenge(scheme.lower(), found)


def docker_config(environment: Mapping[str, str]) -> Path:
    """Where `docker login` keeps what it was told; other tools write there too."""
    folder = environment.get("DOCKER_CONFIG") or os.path.join(environment.get("HOME", ""), ".docker")
    return Path(folder) / "config.json"


def credentials(registry: str, config: Path) -> tuple[str, str] | None:
    """User and password for a registry; None when the file has none. Programs that it names are not started."""
    try:
        with open(config, "rb") as file:
            entries = json.loads(file.read(MAX_CONFIG))["auths"]
        entry = entries.get(registry) or entries.get(f"https://{registry}") or {}
        user, colon, password = binascii.a2b_base64(entry["auth"]).decode().partition(":")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return (user, password) if colon else None


def basic(user: str, password: str) -> str:
    """The header for a user and a password."""
    return "Basic " + binascii.b2a_base64(f"{user}:{password}".encode(), newline=False).decode()
