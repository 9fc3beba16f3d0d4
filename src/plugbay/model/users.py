"""The user numbers inside a sandbox."""

from __future__ import annotations

SANDBOX_USER = 1000
"""The usual user number inside a sandbox. The kernel shows `NOBODY` as the owner of all foreign files."""
NOBODY = 65534
"""The user and group number that some contracts want inside a sandbox."""
