"""Which HTTP requests of plugins are valid: one strict reading of URLs, and the limits of method, headers and body.

Pure. A URL with two readings is refused: a server, a proxy and this module must agree on the host.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from plugbay.model.addresses import clean_host
from plugbay.model.sizes import MAX_PAYLOAD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from plugbay.model.operations import FetchUrl

MAX_URL = 8192
"""Characters; longer ones are refused by most servers."""
MAX_HEADERS = 100
"""Headers of one request or response."""
MAX_REQUEST_HEADERS = 16 << 10
"""Characters of all headers of a request together."""
MAX_BODY = MAX_PAYLOAD
"""Bytes of one body."""

METHODS = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS".split())

HOP_BY_HOP = frozenset(
    "connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    "upgrade".split()
)
"""Headers of one connection, which are not passed on."""

REFUSED_HEADERS = HOP_BY_HOP | {"content-length", "expect", "host", "http2-settings"}
"""Headers that the host writes itself, or that would change where a request ends."""

PORTS = {"http": 80, "https": 443}

_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)(?:#.*)?", re.IGNORECASE)
_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::([0-9]{1,5}))?", re.IGNORECASE)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Url(NamedTuple):
    """A URL, parsed strictly."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{shown}" + ("" if self.port == PORTS[self.scheme] else f":{self.port}")


def parse_url(text: str) -> Url | str:
    """The URL, or why it is invalid, as the end of a sentence. Never quotes it: it may hold a password."""
    match = _URL.fullmatch(text)
    if len(text) > MAX_URL or not text.isascii() or not text.isprintable() or set(text) & set(' \\"<>'):
        return f"must have at most {MAX_URL} printable ASCII characters, all others percent-encoded"
    if match is None:
        return "must begin with http:// or https://"
    if "@" in match[2]:
        return "must not contain a user or a password"
    authority = _AUTHORITY.fullmatch(match[2])
    host = None if authority is None else clean_host(authority[1] or authority[2])
    if authority is None or host is None:
        return "must name a host in lower-case ASCII letters, or an address in its usual form"
    scheme = match[1].lower()
    port = int(authority[3] or PORTS[scheme])
    if not 0 < port < 65536:
        return "must name a port from 1 to 65535"
    path = match[3] if match[3].startswith("/") else "/" + match[3]
    return Url(scheme, host, port, path)


def read_url(op: FetchUrl) -> Url | str:
    """The URL of a valid request, or why the request is invalid."""
    url = parse_url(op.url)
    return f"the URL {url}" if isinstance(url, str) else _problem(op) or url


def _problem(op: FetchUrl) -> str | None:
    if (op.method or "GET").upper() not in METHODS:
        return f"the method must be one of {', '.join(sorted(METHODS))}"
    if op.body is not None and len(op.body) > MAX_BODY:
        return f"the body has {len(op.body):,} bytes; at most {MAX_BODY:,} are sent"
    if len(op.headers) > MAX_HEADERS or sum(len(name) + len(value) for name, value in op.headers) > MAX_REQUEST_HEADERS:
        return f"at most {MAX_HEADERS} headers of {MAX_REQUEST_HEADERS:,} characters are sent"
    for name, value in op.headers:
        problem = header_problem(name, value)
        if problem is not None:
            return f"the header {name[:40] if name.lower() in REFUSED_HEADERS else repr(name[:40])} {problem}"
    return None


def header_problem(name: str, value: str) -> str | None:
    """Why a header cannot be sent, as the end of a sentence."""
    if not _TOKEN.fullmatch(name) or not value.isascii() or not value.replace("\t", " ").isprintable():
        return "has characters that are not allowed in a header"
    return "is set by the host; leave it out" if name.lower() in REFUSED_HEADERS else None
