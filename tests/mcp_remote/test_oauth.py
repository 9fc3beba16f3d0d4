"""OAuth: challenges, resources, and the trust in metadata. `tests/cli/mcp/test_login.py` has whole logins."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from plugbay.contracts.mcp.remote import read_url
from plugbay.mcp_remote import oauth
from plugbay.mcp_remote.http import HttpClient, HttpFailed
from plugbay.mcp_remote.oauth import Attempt, Authority, Challenge, Client, Discovery, Login, covers, parse_challenge
from plugbay.model.errors import Code
from plugbay.model.fetch import Url
from tests.support.http_servers import Answer, response, scripted_server
from tests.support.loops import Run
from tests.support.requirements import requirement

AUTHORITY = Authority("https://as.example", "https://as.example/a", "https://as.example/t", "https://mcp.example/mcp")


@requirement("mcp:remote-scopes")
@pytest.mark.parametrize(
    ("header", "challenge"),
    [
        ("", Challenge()),
        ('Basic realm="x"', Challenge()),
        ("Bearer", Challenge()),
        (
            'Bearer error="insufficient_scope", scope="a b", resource_metadata="https://x.example/m"',
            Challenge("insufficient_scope", "a b", "https://x.example/m"),
        ),
        ("bearer error=invalid_token", Challenge("invalid_token")),
        ('Bearer scope="a\\"; rm -rf /"', Challenge()),
        ('Basic realm="x", Bearer scope="a"', Challenge(scope="a")),
    ],
)
def test_a_challenge_is_read_as_far_as_it_can_be_used(header: str, challenge: Challenge) -> None:
    assert parse_challenge(header) == challenge


@requirement("mcp:remote-resource")
@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("https://mcp.example/team/mcp", True),
        ("https://mcp.example/team/mcp/", True),
        ("https://mcp.example/team", True),
        ("https://mcp.example", True),
        ("https://mcp.example/tea", False),
        ("https://mcp.example/other", False),
        ("https://mcp.example:8443/team/mcp", False),
        ("https://evil.example/team/mcp", False),
        ("http://mcp.example/team/mcp", False),
        ("", False),
    ],
)
def test_a_resource_covers_what_lies_below_it(resource: str, expected: bool) -> None:
    server = read_url("https://mcp.example/team/mcp")
    assert isinstance(server, Url)
    assert covers(resource, server) is expected


@requirement("mcp:remote-issuer")
@pytest.mark.parametrize(
    ("authority", "answer", "words"),
    [
        (AUTHORITY, {"code": "c", "iss": "https://evil.example"}, "another issuer"),
        (Authority("https://as.example", "a", "t", "r", sends_issuer=True), {"code": "c"}, "another issuer"),
        (AUTHORITY, {"error": "access_denied", "error_description": "No\x1b[31m"}, "refused the login: No[31m"),
        (AUTHORITY, {}, "without a code"),
    ],
)
def test_a_response_that_must_not_be_used_is_refused(authority: Authority, answer: dict[str, str], words: str) -> None:
    attempt = Attempt(authority, Client("me"), "http://127.0.0.1:1/callback", ())
    with pytest.raises(HttpFailed, match=words.replace("[", r"\[")):
        attempt.code(answer)
    assert attempt.code({"code": "c", "iss": authority.issuer}) == "c"
    assert not attempt.is_answered_by({"state": "guess"}) and not attempt.is_answered_by({})


def metadata(origin: str, **changes: Any) -> dict[str, Any]:
    return {
        "issuer": origin,
        "authorization_endpoint": f"{origin}/authorize",
        "token_endpoint": f"{origin}/token",
        "code_challenge_methods_supported": ["S256"],
        **changes,
    }


def serve(documents: dict[str, Any], challenge: str = "Bearer") -> Answer:
    """A server that refuses each POST and has these documents by path; `ORIGIN` in them stands for itself."""

    async def answer(writer: asyncio.StreamWriter, line: str, headers: Any, body: bytes) -> None:
        verb, path, _ = line.split()
        found = documents.get(path)
        if verb == "POST":
            writer.write(response("401 No", www_authenticate=challenge))
        elif found is None:
            writer.write(response("404 None"))
        else:
            text = json.dumps(found).replace("ORIGIN", f"http://{headers['host']}")
            writer.write(response("200 OK", text.encode(), content_type="application/json"))

    return answer


def discover(run: Run, documents: dict[str, Any], challenge: str = "Bearer") -> Authority | HttpFailed:
    found: list[Authority | HttpFailed] = []

    async def main() -> None:
        async with scripted_server(serve(documents, challenge)) as text:
            url, http = read_url(text), HttpClient({})
            assert isinstance(url, Url)
            try:
                found.append(await Discovery(http, url).find())
            except HttpFailed as error:
                found.append(error)
            finally:
                await http.aclose()

    run(main)
    return found[0]


RESOURCE = "/.well-known/oauth-protected-resource/mcp"
AT_ROOT = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
PROTECTED = {"resource": "ORIGIN/mcp", "authorization_servers": ["ORIGIN/tenant"], "scopes_supported": ["a"]}


@requirement("mcp:remote-login")
@pytest.mark.parametrize("place", [f"{SERVER}/tenant", f"{OPENID}/tenant", f"/tenant{OPENID}"])
@pytest.mark.parametrize("resource", [RESOURCE, AT_ROOT])
def test_metadata_is_found_at_each_place_that_the_standards_have(run: Run, place: str, resource: str) -> None:
    documents = {resource: PROTECTED, place: metadata("ORIGIN/tenant")}
    found = discover(run, documents)
    assert isinstance(found, Authority)
    assert found.issuer.endswith("/tenant") and found.scopes == ("a",) and found.resource.endswith("/mcp")


@requirement("mcp:remote-login")
def test_a_server_without_metadata_of_its_own_is_its_authorization_server(run: Run) -> None:
    found = discover(run, {SERVER: metadata("ORIGIN")}, 'Bearer scope="x y"')
    assert isinstance(found, Authority) and found.scopes == ("x", "y")


@requirement("mcp:remote-issuer", "mcp:remote-resource")
@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ({}, "has no metadata"),
        ({RESOURCE: {**PROTECTED, "resource": "https://evil.example/mcp"}}, "another resource"),
        ({RESOURCE: {**PROTECTED, "authorization_servers": ["http://as.example"]}}, "cannot be used"),
        ({SERVER: metadata("https://evil.example")}, "another issuer"),
        ({SERVER: metadata("ORIGIN", code_challenge_methods_supported=["plain"])}, "PKCE"),
        ({SERVER: metadata("ORIGIN", token_endpoint="http://as.example/t")}, "token_endpoint"),
        ({SERVER: metadata("ORIGIN", authorization_endpoint="javascript:alert(1)")}, "authorization_endpoint"),
        ({SERVER: [1]}, "JSON object"),
    ],
)
def test_metadata_that_cannot_be_trusted_is_refused(run: Run, documents: dict[str, Any], words: str) -> None:
    found = discover(run, documents)
    assert isinstance(found, HttpFailed) and words in str(found)


@requirement("mcp:remote-refresh")
def test_two_processes_with_one_login_refresh_it_once(run: Run, tmp_path: Path) -> None:
    used: list[bytes] = []

    async def answer(writer: asyncio.StreamWriter, line: str, headers: Any, body: bytes) -> None:
        used.append(body)
        token = {"access_token": f"new-{len(used)}", "token_type": "Bearer", "expires_in": 3600, "refresh_token": "r2"}
        writer.write(response("200 OK", json.dumps(token).encode(), content_type="application/json"))

    async def main() -> None:
        async with scripted_server(answer) as url:
            http = HttpClient({})
            facts: dict[str, Any] = {
                "id": "1",
                "issuer": url,
                "token_endpoint": url,
                "resource": url,
                "client_id": "me",
            }
            facts |= {"access_token": "old", "refresh_token": "r1", "expires_at": 1.0}
            first, second = (Login(facts, http, tmp_path) for _ in range(2))
            assert list(await asyncio.gather(first.token(), second.token())) == ["new-1", "new-1"]
            assert len(used) == 1 and b"refresh_token=r1" in used[0] and b"resource=" in used[0]
            assert await Login(facts, http, tmp_path).token() == "new-1"
            assert await Login({**facts, "id": "2", "expires_at": None}, http, tmp_path).token() == "old"
            assert set(first.secrets()) == {"new-1", "r2"}
            await http.aclose()

    run(main)


@requirement("mcp:remote-refresh")
def test_an_authorization_server_that_is_down_does_not_end_the_login(run: Run, tmp_path: Path) -> None:
    async def answer(writer: asyncio.StreamWriter, *_: object) -> None:
        writer.write(response("503 Busy"))

    async def main() -> None:
        async with scripted_server(answer) as url:
            http = HttpClient({})
            facts = {"id": "1", "issuer": url, "token_endpoint": url, "resource": url, "client_id": "me"}
            login = Login({**facts, "access_token": "old", "refresh_token": "r1"}, http, tmp_path)
            with pytest.raises(HttpFailed) as caught:
                await login.refresh("old")
            assert (caught.value.failure.code, caught.value.failure.retryable) == (Code.UNAVAILABLE, True)
            await http.aclose()

    run(main)


@requirement("mcp:remote-client")
def test_a_known_client_authenticates_as_its_authorization_server_wants() -> None:
    assert oauth.known_client(AUTHORITY, "me", "").auth_method == oauth.PUBLIC
    assert oauth.known_client(AUTHORITY, "me", "s").auth_method == oauth.BASIC
    post = Authority("i", "a", "t", "r", auth_methods=(oauth.POST,))
    assert oauth.known_client(post, "me", "s").auth_method == oauth.POST
    assert "hunter2" not in repr(oauth.known_client(post, "me", "hunter2"))
