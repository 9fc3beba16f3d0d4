"""Ids and timestamps of services: UUIDs, and RFC 3339 in UTC; their default sources and their validation."""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime
from typing import TypeGuard
from uuid import UUID

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)


def new_uuid() -> str:
    """A random UUID."""
    return str(UUID(bytes=os.urandom(16), version=4))


def utc_now() -> str:
    """The current time, to the microsecond."""
    return rfc3339(datetime.fromtimestamp(time.time(), UTC))


def rfc3339(moment: datetime) -> str:
    """An aware moment as RFC 3339 in UTC."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def is_uuid(value: object) -> TypeGuard[str]:
    """Whether a value is a UUID in its usual text form."""
    return isinstance(value, str) and _UUID.fullmatch(value) is not None


def as_utc(value: object) -> str | None:
    """An RFC 3339 text converted to UTC, unchanged if it is in UTC; None if the value is no such text."""
    if not isinstance(value, str) or not _RFC_3339.fullmatch(value):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return value if value.endswith("Z") else rfc3339(moment)
    except (ValueError, OverflowError):
        return None
