"""The user numbers inside a sandbox."""

from __future__ import annotations

SANDBOX_USER = 1000
"""The user of a confined process, unless its contract wants `NOBODY`. Files of other users belong to `NOBODY` there."""
NOBODY = 65534
"""The user and group that some contracts want for a confined process."""
