"""Who a host is to a NATS server: a token, a user with a password, or a JWT that is proved with a seed.

Owns where these come from (variables and a file, never plugbay.toml itself), that they can be used at all before
anybody is asked, and the proof. Says nothing of them: no message repeats a secret.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from plugbay.host.config.sections import BrokerConfig
from plugbay.model.errors import ConfigInvalid, Problem

MAX_FILE = 64 << 10
"""Bytes of a file of credentials; a JWT with many permissions has a few thousand."""

SEED_BYTES = 36
"""Of a seed: two that say what it is for, the key's 32, and two of a checksum."""

_JWT = re.compile(r"-----BEGIN NATS USER JWT-----\s+(\S+)\s+-+END NATS USER JWT-+")
_SEED = re.compile(r"-----BEGIN USER NKEY SEED-----\s+(SU[A-Z2-7]+)\s+-+END USER NKEY SEED-+")


def login_options(settings: BrokerConfig, environ: Mapping[str, str], source: str = "plugbay.toml") -> dict[str, Any]:
    """What to pass to `connect` of nats-py; raises `ConfigInvalid` when something is missing or cannot be used."""
    try:
        return {**_identity(settings, environ), **_trust(settings)}
    except _Unusable as error:
        raise ConfigInvalid(source, [Problem("unusable_credentials", f"broker.{error.field}", str(error))]) from None


class _Unusable(Exception):
    def __init__(self, field: str, text: str) -> None:
        self.field = field
        super().__init__(text)


def _identity(settings: BrokerConfig, environ: Mapping[str, str]) -> dict[str, Any]:
    if settings.token_env is not None:
        return {"token": _variable("token_env", settings.token_env, environ)}
    if settings.password_env is not None:
        return {"user": settings.user, "password": _variable("password_env", settings.password_env, environ)}
    if settings.credentials is not None:
        jwt, key = _credentials(Path(settings.credentials))
        return {"user_jwt_cb": lambda: bytearray(jwt), "signature_cb": _signer(key)}
    return {}


def _trust(settings: BrokerConfig) -> dict[str, Any]:
    if not settings.is_encrypted:
        return {}
    try:
        return {"tls": ssl.create_default_context(cafile=settings.ca_file)}
    except (OSError, ValueError) as error:
        raise _Unusable("ca_file", f"{settings.ca_file} holds no certificates that can be used: {error}") from None


def _variable(field: str, name: str, environ: Mapping[str, str]) -> str:
    value = environ.get(name, "").strip()
    if value and value.isprintable():
        return value
    wrong = "holds characters that cannot be printed" if value else "is not set, or empty"
    raise _Unusable(field, f"the environment variable {name} {wrong}")


def _credentials(path: Path) -> tuple[bytes, Ed25519PrivateKey]:
    """The JWT and the key of a file that nobody else can read."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(MAX_FILE + 1).decode("ascii", "replace")
    except OSError as error:
        raise _Unusable("credentials", f"{path} cannot be read: {error.strerror}") from None
    if mode & 0o077:
        raise _Unusable("credentials", f"others can read {path}; close it with: chmod 600 {path}")
    jwt, seed = _JWT.search(text), _SEED.search(text)
    if len(text) > MAX_FILE or jwt is None or seed is None:
        raise _Unusable("credentials", f"{path} is no file of NATS credentials with a user's JWT and seed")
    key = _key(seed[1])
    if key is None:
        raise _Unusable("credentials", f"the seed in {path} is damaged; have the file made anew")
    return jwt[1].encode(), key


def _key(seed: str) -> Ed25519PrivateKey | None:
    """The key of a seed as NATS writes it; None when its checksum is wrong."""
    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except binascii.Error:
        return None
    if len(raw) != SEED_BYTES or binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        return None
    return Ed25519PrivateKey.from_private_bytes(raw[2:-2])


def _signer(key: Ed25519PrivateKey) -> Callable[[str], bytes]:
    """Signs what a server thought of, as it wants to have it."""
    return lambda nonce: base64.b64encode(key.sign(nonce.encode()))
