"""`others_can_read`: whether a file with a secret is open to more users than this one.

A file of this user must have mode 0600. One of another user is readable only through its group: so systemd and
Kubernetes mount secrets.
"""

from __future__ import annotations

import os
import stat


def others_can_read(found: os.stat_result) -> bool:
    """Whether the mode gives other users the file; for one that a service manager mounts, whether all others can."""
    mounted = found.st_uid != os.geteuid() and not found.st_mode & stat.S_IWGRP
    return bool(found.st_mode & (0o007 if mounted else 0o077))
