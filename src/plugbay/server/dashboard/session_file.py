"""`SessionFile`: the sessions of the dashboard that outlive a restart of the server, in its data folder.

The file has digests of cookies and tokens; a digest opens no session. A damaged or readable file ends all sessions: a
session that was ended must not come back.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from plugbay.host.disk import durable

LOG = logging.getLogger("plugbay.server.dashboard")

FILE_NAME = "dashboard-sessions.json"

MAX_BYTES = 64 << 10
"""64 sessions have 13 KiB."""

DIGEST_BYTES = 32


class StoredSession(msgspec.Struct, frozen=True):
    """One session."""

    cookie: bytes
    """Digest."""
    token: bytes
    """Digest."""
    ends: float
    """Seconds since the epoch."""


class SessionFile:
    """The file of one server."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[StoredSession]:
        """The stored sessions, the oldest first; none if the file is missing, damaged or open to other users."""
        try:
            return self._read()
        except FileNotFoundError:
            return []
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            LOG.warning("sessions of the dashboard have ended: %s: %s", self._path, error)
            return []

    def _read(self) -> list[StoredSession]:
        with open(os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_mode & 0o077:
                raise ValueError("other users can read or change it")
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES} bytes")
        found = msgspec.json.decode(data, type=list[StoredSession])
        if any(len(digest) != DIGEST_BYTES for each in found for digest in (each.cookie, each.token)):
            raise ValueError("it has a digest of another length")
        return found

    def write(self, sessions: Sequence[StoredSession]) -> None:
        """Replace the stored sessions; if that is not possible, none is stored."""
        try:
            durable.write_file(self._path, msgspec.json.encode(list(sessions)), mode=0o600)
        except OSError as error:
            LOG.warning("sessions of the dashboard end with the server: %s: %s", self._path, error.strerror)
            with suppress(OSError):
                self._path.unlink()
