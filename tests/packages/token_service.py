"""A token service for registries, with one user. It owns its certificate, tokens and HTTP server."""

from __future__ import annotations

import base64
import datetime
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

SERVICE, ISSUER = "the registry of this test", "the token service of this test"
CREDENTIALS = ("ada", "open sesame")


def _url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """Signs tokens with a key that the registry trusts."""

    def __init__(self, folder: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        builder = x509.CertificateBuilder(name, name, self._key.public_key(), x509.random_serial_number())
        certificate = builder.not_valid_before(now - day).not_valid_after(now + day).sign(self._key, SHA256())
        self.bundle = folder / "token.pem"
        self.bundle.write_bytes(certificate.public_bytes(Encoding.PEM))
        self._chain = [base64.b64encode(certificate.public_bytes(Encoding.DER)).decode()]

    def token(self, scope: str, user: str) -> str:
        kind, name, actions = scope.split(":")
        now = int(datetime.datetime.now(datetime.UTC).timestamp())
        claims = {
            "iss": ISSUER,
            "sub": user,
            "aud": SERVICE,
            "exp": now + 300,
            "nbf": now - 300,
            "iat": now,
            "jti": "1",
            "access": [{"type": kind, "name": name, "actions": actions.split(",") if user else []}],
        }
        header = {"typ": "JWT", "alg": "ES256", "x5c": self._chain}
        signed = ".".join(_url64(json.dumps(part).encode()) for part in (header, claims))
        r, s = utils.decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(SHA256())))
        return f"{signed}.{_url64(r.to_bytes(32) + s.to_bytes(32))}"


@contextmanager
def serve(folder: Path) -> Iterator[dict[str, Any]]:
    """The `auth` section of a registry that uses this service."""
    issuer = Issuer(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = parse_qs(urlsplit(self.path).query)
            known = "Basic " + base64.b64encode(":".join(CREDENTIALS).encode()).decode()
            user = CREDENTIALS[0] if self.headers.get("authorization") == known else ""
            body = json.dumps({"token": issuer.token(asked["scope"][0], user)}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Silent: tests look at the client."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            realm = f"http://127.0.0.1:{server.server_port}/token"
            facts = {"realm": realm, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": str(issuer.bundle)}
            yield {"token": facts}
        finally:
            server.shutdown()
            thread.join()
