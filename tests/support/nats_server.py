"""A real NATS server on a free port of this machine (Debian's `nats-server`), and identities for it.

The server ends with the test, and with the process that runs the tests, even if that is killed. It can be killed,
stopped and started again on the same port. Identities are keys, JWTs that vouch for each other, files of credentials
and certificates, written from NATS's own description of its keys: a kind, 32 bytes and a checksum, in base 32.
"""

from __future__ import annotations

import base64
import binascii
import ctypes
import datetime
import hashlib
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.support.patience import PATIENCE, pauses
from tests.support.ports import free_port

PR_SET_PDEATHSIG = 1

PROGRAM = shutil.which("nats-server", path=f"{os.environ['PATH']}:/usr/sbin") or "nats-server"
"""Debian keeps it among the programs of root, which are not in the PATH of other users."""


class NatsServer:
    """One server; `settings` are those of its configuration file."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._settings = settings
        self._config = folder / "nats.conf"
        self._log = folder / "nats.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, on the port it had before."""
        self._config.write_text(json.dumps({"host": "127.0.0.1", "port": self.port, **self._settings}))
        with open(self._log, "wb") as file:
            self._process = subprocess.Popen(
                [PROGRAM, "-c", str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                preexec_fn=_die_with_parent,
            )
        self._await_ready()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE)

    def freeze(self) -> None:
        """It keeps its connections and says nothing, until it is thawed or killed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _await_ready(self) -> None:
        assert self._process is not None
        for pause in pauses(why=f"the NATS server does not start: {self._log}"):
            said = self._log.read_text("utf-8", "replace")
            if "Server is ready" in said:
                return
            assert self._process.poll() is None, said
            time.sleep(pause)


@contextmanager
def nats_server(folder: Path, **settings: Any) -> Iterator[NatsServer]:
    """A server that is killed in the end."""
    server = NatsServer(folder, **settings)
    try:
        yield server
    finally:
        server.kill()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


OPERATOR, ACCOUNT, USER = 14 << 3, 0, 20 << 3
SEED = 18 << 3


class Identity:
    """A key pair of one kind."""

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self._key = Ed25519PrivateKey.generate()

    @property
    def public(self) -> str:
        return _encoded(bytes([self._kind]) + self._key.public_key().public_bytes_raw())

    @property
    def seed(self) -> str:
        first = bytes([SEED | (self._kind >> 5), (self._kind & 31) << 3])
        return _encoded(first + self._key.private_bytes_raw())

    def vouch(self, other: Identity, kind: str, **claims: Any) -> str:
        """A JWT of ours about the other."""
        body = {
            "iss": self.public,
            "sub": other.public,
            "iat": 1,
            "name": kind,
            "nats": {"type": kind, "version": 2, **claims},
        }
        body["jti"] = hashlib.sha256(json.dumps(body).encode()).hexdigest()
        said = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(body)}"
        return f"{said}.{_text(self._key.sign(said.encode()))}"


def decentralised(credentials: Path) -> dict[str, Any]:
    """The settings of a server that lets in whoever has these credentials, which are written."""
    operator, account, user = Identity(OPERATOR), Identity(ACCOUNT), Identity(USER)
    limits = {
        "subs": -1,
        "data": -1,
        "payload": -1,
        "imports": -1,
        "exports": -1,
        "conn": -1,
        "leaf": -1,
        "wildcards": True,
    }
    write_credentials(credentials, account.vouch(user, "user", subs=-1, data=-1, payload=-1), user.seed)
    return {
        "operator": operator.vouch(operator, "operator"),
        "resolver": "MEMORY",
        "resolver_preload": {account.public: operator.vouch(account, "account", limits=limits)},
    }


def write_credentials(path: Path, jwt: str, seed: str) -> None:
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"************************* IMPORTANT *************************\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    path.chmod(0o600)


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that vouches for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "cert.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return certificate, private


def _encoded(raw: bytes) -> str:
    checksum = binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(raw + checksum).decode().rstrip("=")


def _part(value: dict[str, Any]) -> str:
    return _text(json.dumps(value).encode())


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
