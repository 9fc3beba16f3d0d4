"""`Greeting`: the negotiation of era and revision, on the client's side. Decides; writes nothing.

A client never probes. It opens in the configured era and switches only if the server's own answer demands it: an error
that names other revisions, or that does not know the method. Every revision is tried once.
"""

from __future__ import annotations

from plugbay.contracts.mcp import errors, messages
from plugbay.contracts.mcp.messages import HANDSHAKE, MODERN, MODERN_REVISIONS, REVISIONS, as_object, as_text
from plugbay.contracts.rpc import error_text
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

WRONG_ERA = frozenset(
    {errors.METHOD_NOT_FOUND, errors.INVALID_PARAMS, errors.INVALID_REQUEST, errors.UNSUPPORTED_VERSION}
)
"""Codes with which a server of the modern era refuses `initialize`: unknown method, or no `_meta`."""


class Welcome(Value):
    """The result of a greeting: the revision, `serverInfo`, and the capabilities of the server."""

    __slots__ = ("capabilities", "server", "version", "warnings")

    def __init__(self, version: str, server: dict[str, str], capabilities: dict[str, Any], warnings: list[str]) -> None:
        self.version = version
        self.server = server
        self.capabilities = capabilities
        self.warnings = warnings


class Greeting:
    """One negotiation: the next request to send, and what an answer to it means."""

    __slots__ = ("_client", "_offers", "_refusals", "_tried", "era", "version")

    def __init__(self, era: str, client: Mapping[str, Any], offers: frozenset[str]) -> None:
        self.era = era
        self.version = REVISIONS[0] if era == HANDSHAKE else MODERN_REVISIONS[0]
        self._client = dict(client)
        self._offers = messages.client_capabilities(offers)
        self._tried: set[tuple[str, str]] = set()
        self._refusals: list[str] = []

    def build_meta(self) -> dict[str, Any]:
        """The `_meta` of every request of the modern era."""
        return {messages.VERSION: self.version, messages.CLIENT: self._client, messages.CAPABILITIES: self._offers}

    def build_opening(self) -> tuple[str, dict[str, Any]]:
        """The method and the parameters of the next attempt."""
        self._tried.add((self.era, self.version))
        if self.era == MODERN:
            return messages.DISCOVER, {"_meta": self.build_meta()}
        said = {"protocolVersion": self.version, "capabilities": self._offers, "clientInfo": self._client}
        return messages.INITIALIZE, said

    def take_error(self, error: Any) -> Failure | None:
        """The server refused. None: there is another revision to try, which `build_opening` now builds."""
        said = as_object(error)
        method = messages.INITIALIZE if self.era == HANDSHAKE else messages.DISCOVER
        self._refusals.append(f"{method}: {error_text(said)}")
        supported = as_object(said.get("data")).get("supported")
        number = said.get("code")
        if isinstance(supported, list):
            return None if self._switch_to(supported) else self._refuse_versions(supported)
        if self.era == MODERN or (type(number) is int and number in WRONG_ERA):
            other = MODERN_REVISIONS if self.era == HANDSHAKE else REVISIONS
            if self._switch_to(list(other[:1])):
                return None
        detail: dict[str, Any] = {"plugin_code": number} if type(number) is int else {}
        what = f"the server refused the greeting ({'; '.join(self._refusals)})"
        return Failure(Code.HANDSHAKE_FAILED, what, origin=Origin.PLUGIN, detail=detail)

    def _switch_to(self, supported: list[Any]) -> bool:
        """Choose the newest revision that both ends have and that was not tried yet."""
        for era, revisions in ((MODERN, MODERN_REVISIONS), (HANDSHAKE, REVISIONS)):
            for version in revisions:
                if version in supported and (era, version) not in self._tried:
                    self.era, self.version = era, version
                    return True
        return False

    def _refuse_versions(self, supported: list[Any]) -> Failure:
        theirs = [version for version in supported if isinstance(version, str)]
        ours = [*MODERN_REVISIONS, *REVISIONS]
        what = f"the server speaks {', '.join(theirs) or 'no revision'} of MCP; this host speaks {', '.join(ours)}"
        return Failure(Code.PROTOCOL_VERSION_MISMATCH, what, detail={"supported": theirs, "expected": ours})

    def take_result(self, result: Any) -> Welcome | Failure | None:
        """The server answered. None: only another revision is possible, which `build_opening` now builds."""
        if not isinstance(result, dict):
            return Failure(Code.HANDSHAKE_FAILED, "the answer to the greeting is not an object", origin=Origin.PLUGIN)
        return self._take_discovery(result) if self.era == MODERN else self._take_initialization(result)

    def _take_discovery(self, result: dict[str, Any]) -> Welcome | Failure | None:
        supported = result.get("supportedVersions")
        if isinstance(supported, list) and self.version not in supported:
            return None if self._switch_to(supported) else self._refuse_versions(supported)
        warnings = [] if isinstance(supported, list) else ["server/discover was answered without supportedVersions"]
        return self._build_welcome(result, as_object(result.get("_meta")).get(messages.SERVER), warnings)

    def _take_initialization(self, result: dict[str, Any]) -> Welcome | Failure:
        said, warnings = result.get("protocolVersion"), []
        if isinstance(said, str) and said in REVISIONS:
            self.version = said
        elif _is_revision(said):
            return self._refuse_versions([said])
        else:
            shown = said[:40] if isinstance(said, str) else said
            warnings.append(f"answered initialize with the protocolVersion {shown!r}, which is taken as {self.version}")
        return self._build_welcome(result, result.get("serverInfo"), warnings)

    def _build_welcome(self, result: dict[str, Any], info: Any, warnings: list[str]) -> Welcome:
        server = {key: as_text(as_object(info).get(key)) for key in ("name", "version", "title")}
        server["instructions"] = as_text(result.get("instructions"))
        for key in ("name", "version"):
            if not server[key]:
                warnings.append(f"does not say its {key} in serverInfo")
        if not isinstance(result.get("capabilities"), dict):
            warnings.append("announces no capabilities")
        optional = {key: server[key] for key in ("title", "instructions") if server[key]}
        said = {"name": server["name"], "version": server["version"], **optional}
        return Welcome(self.version, said, as_object(result.get("capabilities")), warnings)


def _is_revision(said: Any) -> bool:
    """Whether it looks like a revision: a date."""
    if not (isinstance(said, str) and len(said) == 10):
        return False
    year, month, day = said[:4], said[5:7], said[8:]
    return said[4] == said[7] == "-" and all(part.isascii() and part.isdigit() for part in (year, month, day))
