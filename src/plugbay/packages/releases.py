"""The newest release of a package in the registry from which it was installed.

Tags that read as versions count. A tag is only a hint: the package that is pulled has its own version and signature,
and `installer` judges those.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from plugbay.packages.connection import Connection
from plugbay.packages.installer import is_older, version_key
from plugbay.packages.reference import Reference, is_reference, parse

MAX_TAG = 128
"""Characters of a tag, by the OCI specification."""

_VERSION = re.compile(r"v?[0-9]+(?:\.[0-9]+)*(?:[-_][0-9A-Za-z._-]+)?")


def origin(source: str) -> Reference | None:
    """The repository that a release was pulled from; None for a release from a file."""
    return replace(parse(source), tag=None, digest=None) if is_reference(source) else None


def newest(connection: Connection, place: Reference, current: str) -> Reference | None:
    """The newest release in a repository; None if no tag is a version. Pre-releases count if `current` is one."""
    tags = [tag for tag in connection.tags() if len(tag) <= MAX_TAG and _VERSION.fullmatch(tag)]
    if not _is_prerelease(current):
        tags = [tag for tag in tags if not _is_prerelease(version_of(tag))]
    return replace(place, tag=max(tags, key=lambda tag: version_key(version_of(tag)))) if tags else None


def is_newer(place: Reference, current: str) -> bool:
    """Whether the tag of a reference is a newer version than `current`."""
    return place.tag is not None and is_older(current, version_of(place.tag))


def version_of(tag: str) -> str:
    """The version that a tag stands for: `+` is not allowed in tags, and `push` writes `_` for it."""
    return tag.replace("_", "+", 1)


def _is_prerelease(version: str) -> bool:
    return "-" in version.partition("+")[0]
