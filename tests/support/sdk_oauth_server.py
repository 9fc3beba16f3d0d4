# mypy: disable-error-code="untyped-decorator"
"""A server of the official MCP SDK with its authorization server, which agrees to every login. A program.

    python sdk_oauth_server.py PORT [seconds=N] [iss=URL] [resource=PATH] [known=CLIENT:SECRET] [documents=ORIGIN]

`seconds`: lifetime of access tokens; `iss`: the issuer in authorization responses; `resource`: the path in the
metadata; `known`: the only client, registered beforehand, instead of dynamic registration; `documents`: URLs of client
id metadata documents are accepted as client ids, and each document is said to have a redirect to this origin.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from typing import Any

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl, AnyUrl
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

PORT = int(sys.argv[1])
NAMED = dict(word.split("=", 1) for word in sys.argv[2:])
ORIGIN = f"http://127.0.0.1:{PORT}"
RESOURCE = ORIGIN + NAMED.get("resource", "/mcp")


class Provider:
    """Clients and tokens in memory."""

    def __init__(self) -> None:
        self.clients: dict[str, Any] = {}
        self.codes: dict[str, Any] = {}
        self.access: dict[str, Any] = {}
        self.refresh: dict[str, Any] = {}
        self.refreshes = 0
        self.registered: list[str] = []
        if "known" in NAMED:
            id, secret = NAMED["known"].split(":")
            self.clients[id] = OAuthClientInformationFull(
                client_id=id,
                client_secret=secret,
                redirect_uris=[AnyUrl(f"http://127.0.0.1:{NAMED['port']}/callback")],
                token_endpoint_auth_method="client_secret_basic",
                scope="user",
            )

    async def get_client(self, client_id: str) -> Any:
        if "documents" in NAMED and client_id.startswith("https://"):
            self.clients[client_id] = OAuthClientInformationFull(
                client_id=client_id,
                redirect_uris=[AnyUrl(f"{NAMED['documents']}/callback")],
                token_endpoint_auth_method="none",
                scope="user",
            )
        return self.clients.get(client_id)

    async def register_client(self, client_info: Any) -> None:
        self.clients[client_info.client_id] = client_info
        self.registered.append(client_info.client_id)

    async def authorize(self, client: Any, params: AuthorizationParams) -> str:
        code = AuthorizationCode(
            code=secrets.token_hex(16),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        more = {"iss": NAMED["iss"]} if "iss" in NAMED else {}
        return str(construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state, **more))

    async def load_authorization_code(self, client: Any, authorization_code: str) -> Any:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client: Any, authorization_code: Any) -> Any:
        del self.codes[authorization_code.code]
        return self.issue(client, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> Any:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(self, client: Any, refresh_token: Any, scopes: list[str]) -> Any:
        del self.refresh[refresh_token.token]  # good for one use only
        self.refreshes += 1
        return self.issue(client, scopes or refresh_token.scopes, refresh_token.resource)

    def issue(self, client: Any, scopes: list[str], resource: str | None) -> Any:
        seconds = int(NAMED.get("seconds", "3600"))
        access, refresh = f"access-{secrets.token_hex(16)}", f"refresh-{secrets.token_hex(16)}"
        expires = int(time.time()) + seconds
        self.access[access] = AccessToken(
            token=access, client_id=client.client_id, scopes=scopes, expires_at=expires, resource=resource
        )
        self.refresh[refresh] = RefreshToken(
            token=refresh, client_id=client.client_id, scopes=scopes, resource=resource
        )
        return OAuthToken(
            access_token=access, token_type="Bearer", expires_in=seconds, refresh_token=refresh, scope=" ".join(scopes)
        )

    async def load_access_token(self, token: str) -> Any:
        return self.access.get(token)

    async def revoke_token(self, token: Any) -> None:
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)

    async def exchange_identity_assertion(self, client: Any, params: Any) -> Any:
        raise NotImplementedError


provider = Provider()
server = MCPServer(
    "guarded",
    version="1.0.0",
    auth_server_provider=provider,
    auth=AuthSettings(
        issuer_url=AnyHttpUrl(ORIGIN),
        resource_server_url=AnyHttpUrl(RESOURCE),
        required_scopes=["user"],
        client_registration_options=ClientRegistrationOptions(
            enabled="known" not in NAMED, valid_scopes=["user", "other"], default_scopes=["user"]
        ),
        revocation_options=RevocationOptions(enabled=True),
        validate_token_resource=True,
    ),
)


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def token(ctx: Context) -> str:
    """Repeat the credentials of this request."""
    request: Any = ctx.request_context.request
    return str(request.headers["authorization"])


@server.custom_route("/state", methods=["GET"])
async def state(request: Request) -> Response:
    counts = {"access": len(provider.access), "refreshes": provider.refreshes}
    return JSONResponse({**counts, "clients": list(provider.clients), "registered": provider.registered})


@server.custom_route("/forget", methods=["POST"])
async def forget(request: Request) -> Response:
    """Withdraw all tokens, or with ?only=access the access tokens."""
    provider.access.clear()
    if request.query_params.get("only") != "access":
        provider.refresh.clear()
    return JSONResponse({})


METADATA = "/.well-known/oauth-authorization-server"


def app() -> Any:
    made = server.streamable_http_app()

    async def with_documents(scope: Any, receive: Any, send: Any) -> None:
        """Say in the metadata that client id metadata documents are accepted."""
        body = b""

        async def collect(message: Any) -> None:
            nonlocal body
            body += message.get("body", b"")

        if "documents" not in NAMED or scope.get("path") != METADATA:
            await made(scope, receive, send)
            return
        await made(scope, receive, collect)
        more = {"client_id_metadata_document_supported": True}
        await JSONResponse({**json.loads(body), **more})(scope, receive, send)

    return with_documents


uvicorn.run(app(), host="127.0.0.1", port=PORT, log_level="warning")
