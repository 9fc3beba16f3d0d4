"""A server on the network as a plugin: the rules of its URL and headers, and the variables of its bridge.

The program of such a plugin is `plugbay.mcp_remote`, which speaks MCP over stdio to the host and streamable HTTP to the
server. URL and headers are variables of that program, never arguments, because other users can read arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.model import addresses
from plugbay.model.fetch import Url, header_problem, parse_url

if TYPE_CHECKING:
    from plugbay.model.spec import PluginSpec

MODULE = "plugbay.mcp_remote"

NAME_VARIABLE = "PLUGBAY_MCP_NAME"
URL_VARIABLE = "PLUGBAY_MCP_URL"
HEADER_VARIABLE = "PLUGBAY_MCP_HEADER_"
"""Followed by the name of the header."""
LOGIN_VARIABLE = "PLUGBAY_MCP_LOGIN"
"""The OAuth login, as JSON."""
FOLDER_VARIABLE = "PLUGBAY_MCP_FOLDER"
"""The plugin's own folder, in which the bridge keeps refreshed tokens."""

HTTP_TYPES = ("http", "streamable-http", "streamableHttp", "streamable_http")
"""Names that clients have for streamable HTTP."""

OLD_TRANSPORT = (
    "the transport SSE was replaced by streamable HTTP, which plugbay speaks; most of these servers have it too, often "
    'at /mcp instead of /sse: declare that URL with the type "http"'
)

NETWORK_VARIABLES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Variables of the host that say how the network is reached."""

OWN_HEADERS = frozenset(
    "accept accept-encoding content-type content-encoding last-event-id mcp-session-id mcp-protocol-version mcp-method "
    "mcp-name".split()
)
"""Headers that the bridge writes itself."""

LOCAL_NAME = "localhost"

TOKENS_FILE = "tokens.json"
"""Refreshed tokens of a login, in the state folder of the server's bridge."""

_SECRET_NAME = re.compile(r"auth|token|key|secret|password|cookie|credential", re.IGNORECASE)


def is_url(text: str) -> bool:
    """Whether a word names a server on the network."""
    return text.lower().startswith(("http://", "https://"))


def read_url(text: str) -> Url | str:
    """The URL of a server, or why it cannot be used, as the end of a sentence."""
    url = parse_url(text)
    if isinstance(url, str):
        return url
    if url.scheme == "http" and not is_local(url.host):
        return "must begin with https://; http:// is for localhost and for loopback and private addresses"
    return url


def is_local(host: str) -> bool:
    """Whether a host is this machine by its usual name, or a loopback or private address."""
    return host == LOCAL_NAME or addresses.denied(host) in addresses.PRIVATE


def headers_problem(headers: Mapping[str, str]) -> tuple[str, str] | None:
    """The first header that cannot be sent, and why."""
    for name, value in headers.items():
        if name.lower() in OWN_HEADERS:
            return name, "is written by plugbay"
        problem = header_problem(name, value)
        if problem is not None:
            return name, problem
    return None


def is_sensitive(header: str) -> bool:
    """Whether the value of a header is a credential, judged by the header's name."""
    return _SECRET_NAME.search(header) is not None


def shown_url(url: Url) -> str:
    """The URL without its query, which may hold a key."""
    path, mark, _ = url.path.partition("?")
    return f"{url.origin}{path}{'?…' if mark else ''}"


def remote_spec(
    id: str, declared: str, url: Url, root: Path, headers: Iterable[tuple[str, str]] = (), description: str = ""
) -> PluginSpec:
    """A server on the network as a plugin. `declared`: its URL with references, which are resolved at its start."""
    from msgspec.structs import replace

    from plugbay.contracts.mcp.spec import resident

    named = tuple((f"{HEADER_VARIABLE}{name}", value) for name, value in headers)
    spec = resident(
        id,
        (),
        root,
        description=description,
        cwd=Path("/"),
        env=((NAME_VARIABLE, id), (URL_VARIABLE, declared), *named),
    )
    return replace(
        spec,
        url=shown_url(url),
        env_inherit=(*spec.env_inherit, *NETWORK_VARIABLES),
        env_facts=((FOLDER_VARIABLE, "config.root"),),
        connects=((url.host, url.port),),
    )
