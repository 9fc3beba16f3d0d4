"""Notifications to a service manager: systemd's protocol, one datagram to the socket that `NOTIFY_SOCKET` names.

Without that variable nothing is sent. A notification that cannot be sent changes nothing for the service.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

VARIABLE = "NOTIFY_SOCKET"

READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(state: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send a state such as `READY`; False if there is no service manager, or it does not take it."""
    address = environ.get(VARIABLE, "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):  # a name outside the file system
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(state.encode(), address)
    except OSError:
        return False
    return True
