"""The rules of a URL and its headers, and the plugin that they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.contracts.mcp import remote
from plugbay.model.fetch import Url
from tests.support.requirements import requirement


@requirement("mcp:manifest-remote")
@pytest.mark.parametrize(
    "text",
    [
        "https://mcp.example.com/mcp",
        "http://localhost:8000/mcp",
        "http://127.0.0.1:8000",
        "http://[::1]:8000/mcp",
        "http://10.1.2.3/mcp",
    ],
)
def test_https_and_local_addresses_can_be_used(text: str) -> None:
    assert isinstance(remote.read_url(text), Url)


@requirement("mcp:manifest-remote")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("http://mcp.example.com/mcp", "must begin with https://"),
        ("http://8.8.8.8/mcp", "must begin with https://"),
        ("http://169.254.169.254/", "must begin with https://"),
        ("https://me:hunter2@mcp.example.com/", "not contain a user or a password"),
        ("ftp://x/", "http:// or https://"),
    ],
)
def test_other_urls_are_refused_without_being_quoted(text: str, why: str) -> None:
    problem = remote.read_url(text)
    assert isinstance(problem, str) and why in problem and "hunter2" not in problem


@requirement("mcp:remote-headers")
@pytest.mark.parametrize("name", ["Host", "content-length", "Mcp-Session-Id", "accept", "bad name", ""])
def test_headers_of_the_protocol_and_unusable_ones_are_refused(name: str) -> None:
    assert remote.headers_problem({"X-Fine": "a", name: "x"}) is not None
    assert remote.headers_problem({"Authorization": "Bearer x\ny"}) is not None
    assert remote.headers_problem({"Authorization": "Bearer ${TOKEN}"}) is None


@requirement("mcp:remote-headers")
def test_url_and_headers_are_variables_and_a_query_is_not_shown(tmp_path: Path) -> None:
    url = remote.read_url("https://mcp.example.com:8443/mcp?key=hunter2")
    assert isinstance(url, Url)
    declared = "https://mcp.example.com:8443/mcp?key=${KEY}"
    spec = remote.remote_spec("far", declared, url, tmp_path, [("X-Key", "secret://k")])
    assert spec.url == "https://mcp.example.com:8443/mcp?…"
    assert dict(spec.env) == {
        "PLUGBAY_MCP_NAME": "far",
        "PLUGBAY_MCP_URL": declared,
        "PLUGBAY_MCP_HEADER_X-Key": "secret://k",
    }
    assert spec.connects == (("mcp.example.com", 8443),)
    assert "hunter2" not in repr(spec)


def test_a_credential_is_recognised_by_the_name_of_its_header() -> None:
    assert all(map(remote.is_sensitive, ["Authorization", "X-Api-Key", "Cookie", "private-token"]))
    assert not remote.is_sensitive("X-Region")
