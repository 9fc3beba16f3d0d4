"""An authoritative name server for tests: each lookup of a name gets the next of its answers.

The resolver of the system asks it: `in_a_network_of_its_own` runs a program in namespaces in which the only name server
is at `ADDRESS`, and in which the program may give itself any address.
"""

from __future__ import annotations

import asyncio
import fcntl
import ipaddress
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

ADDRESS = "127.0.0.53"

A, CNAME, AAAA = 1, 5, 28
MAX_DATAGRAM = 512

Records = Sequence[str]
"""Addresses of the name; a name before them is its canonical name (CNAME)."""

_HEAD = struct.Struct(">HHHHHH")
_MOUNT = 'mount --bind "$0" /etc/resolv.conf && mount --bind "$1" /etc/nsswitch.conf && shift && exec "$@"'


class NameServer(asyncio.DatagramProtocol):
    """Answers from a table: name → the records of the first lookup, of the second, …; the last ones stay."""

    def __init__(self, table: Mapping[str, Sequence[Records]], ttl: int = 0) -> None:
        self.asked: Counter[tuple[str, int]] = Counter()
        """Lookups by name and type."""
        self._table = table
        self._ttl = ttl

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._udp, _ = await loop.create_datagram_endpoint(lambda: self, (ADDRESS, 53))

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        answer = self._answer(data)
        assert len(answer) <= MAX_DATAGRAM, "more records than a datagram holds"
        self._udp.sendto(answer, addr)

    def _answer(self, data: bytes) -> bytes:
        question = _question(data)
        name, kind = _name(question), int.from_bytes(question[-4:-2])
        self.asked[name, kind] += 1
        lookups = self._table.get(name)
        if lookups is None:
            return _HEAD.pack(int.from_bytes(data[:2]), 0x8583, 1, 0, 0, 0) + question
        records = lookups[min(self.asked[name, kind], len(lookups)) - 1]
        body = [record for each in records if (record := self._record(name, each, kind, records))]
        return _HEAD.pack(int.from_bytes(data[:2]), 0x8580, 1, len(body), 0, 0) + question + b"".join(body)

    def _record(self, name: str, value: str, kind: int, records: Records) -> bytes | None:
        owner = name if _is_address(records[0]) else records[0]
        if not _is_address(value):
            return self._encode(name, CNAME, _encode_name(value))
        address = ipaddress.ip_address(value)
        matches = kind == (A if address.version == 4 else AAAA)
        return self._encode(owner, kind, address.packed) if matches else None

    def _encode(self, owner: str, kind: int, data: bytes) -> bytes:
        return _encode_name(owner) + struct.pack(">HHIH", kind, 1, self._ttl, len(data)) + data


def _is_address(text: str) -> bool:
    return ":" in text or text.replace(".", "").isdigit()


def _question(data: bytes) -> bytes:
    end = data.index(b"\0", _HEAD.size) + 5
    return data[_HEAD.size : end]


def _name(question: bytes) -> str:
    labels, at = [], 0
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode())
        at += 1 + question[at]
    return ".".join(labels).lower()


def _encode_name(name: str) -> bytes:
    return b"".join(bytes((len(label),)) + label.encode() for label in name.split(".")) + b"\0"


def add_address(alias: str, address: str) -> None:
    """Give the loopback interface an address, and start it. For a program in a network of its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        name = alias.encode()
        if address:
            fcntl.ioctl(link, 0x8916, struct.pack("16sHH4s8x", name, 2, 0, socket.inet_aton(address)))  # SIOCSIFADDR
        fcntl.ioctl(link, 0x8914, struct.pack("16sH14x", name, 1))  # SIOCSIFFLAGS: up


def in_a_network_of_its_own(module: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a module of the tests where the system resolves names by the server at `ADDRESS`."""
    resolver, switch = folder / "resolv.conf", folder / "nsswitch.conf"
    resolver.write_text(f"nameserver {ADDRESS}\noptions attempts:1 timeout:10\n")
    switch.write_text("hosts: dns\n")
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "--net", "sh", "-c", _MOUNT]
    command = [*unshare, str(resolver), str(switch), sys.executable, "-m", module, *words]
    root = Path(__file__).parents[2]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
