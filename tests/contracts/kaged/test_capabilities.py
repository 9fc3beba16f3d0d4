"""Capability strings: every form, and everything that only looks like one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.kaged.capabilities import conflicts, parse_capability
from plugbay.model.spec import Access
from tests.support.requirements import requirement


@requirement("kaged:manifest-capability-grammar")
@pytest.mark.parametrize(
    ("text", "access"),
    [
        ("read:fs:/srv/data", Access("read_path", "/srv/data")),
        ("read:fs:/", Access("read_path", "/")),
        ("read:fs://srv//data/./x/", Access("read_path", "/srv/data/x")),
        ("read:fs:/with space:and colon", Access("read_path", "/with space:and colon")),
        ("write:fs:/srv/data..old", Access("write_path", "/srv/data..old")),
        ("exec:git:/usr/bin/git", Access("run", "/usr/bin/git")),
        ("exec:/usr/bin/git:/usr/bin/git", Access("run", "/usr/bin/git")),
        ("net:api.example.com:443", Access("network", "api.example.com", 443)),
        ("net:API.Example.com:1", Access("network", "api.example.com", 1)),
        ("net:localhost:65535", Access("network", "localhost", 65535)),
        ("net:127.0.0.1:80", Access("network", "127.0.0.1", 80)),
        ("net:my_service:80", Access("network", "my_service", 80)),
        ("net:[::1]:8080", Access("network", "::1", 8080)),
        ("net:[2001:DB8::1]:*", Access("network", "2001:db8::1")),
        ("net:example.com:*", Access("network", "example.com")),
        ("net:*", Access("network")),
        ("net:[]", Access("no_network")),
        ("kaged:storage:read", Access("storage_read")),
        ("kaged:storage:write", Access("storage_write")),
    ],
)
def test_a_capability_of_the_contract_says_what_it_gives_access_to(text: str, access: Access) -> None:
    assert parse_capability(text) == access


@requirement("kaged:manifest-capability-grammar")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no capability"),
        ("filesystem", "is no capability"),
        ("fs:read:/x", "is no capability"),
        ("read:/x", "is no capability"),
        ("READ:fs:/x", "is no capability"),
        (" net:*", "is no capability"),
        ("kaged:storage", "is no capability"),
        ("kaged:storage:delete", "is no capability"),
        ("kaged:storage:read ", "is no capability"),
        ("read:fs:", "absolute path"),
        ("read:fs:data", "absolute path"),
        ("read:fs:./data", "absolute path"),
        ("read:fs:~/data", "absolute path"),
        ("write:fs:../data", "absolute path"),
        ("write:fs:/srv/../etc", "'..'"),
        ("write:fs:/srv/\0", "NUL"),
        ("exec:", "names no binary"),
        ("exec::/usr/bin/git", "names no binary"),
        ("exec: :/usr/bin/git", "names no binary"),
        ("exec:git", "lacks the path"),
        ("exec:git:", "lacks the path"),
        ("exec:git:bin/git", "absolute path"),
        ("net:", "needs a host"),
        ("net:example.com", "needs a host and a port"),
        ("net::443", "needs a host"),
        ("net:example.com:", "needs a port"),
        ("net:example.com:0", "needs a port"),
        ("net:example.com:70000", "needs a port"),
        ("net:example.com:65536", "needs a port"),
        ("net:example.com:-1", "needs a port"),
        ("net:example.com:0443", "needs a port"),
        ("net:example.com:http", "needs a port"),
        ("net:example.com:\u0663", "needs a port"),
        ("net:*:443", "one host"),
        ("net:*:*", "one host"),
        ("net:*.example.com:443", "one host"),
        ("net:https://example.com:443", "brackets"),
        ("net:exa mple.com:443", "one host"),
        ("net:example..com:443", "one host"),
        ("net:.example.com:443", "one host"),
        ("net:-x:443", "one host"),
        ("net:" + "a" * 64 + ":443", "one host"),
        ("net:" + "a." * 130 + "b:443", "one host"),
        ("net:::1:443", "brackets"),
        ("net:[]:443", "brackets"),
        ("net:[example.com]:443", "brackets"),
        ("net:[::1%eth0]:443", "brackets"),
        ("net:[::1]", "a port after its brackets"),
    ],
)
def test_anything_else_is_refused_by_name(text: str, words: str) -> None:
    problem = parse_capability(text)
    assert isinstance(problem, str)
    assert problem.startswith(repr(text))
    assert words in problem


@given(st.text() | st.from_regex(r"(read:fs:|write:fs:|exec:|net:|kaged:storage:).{0,20}"))
def test_no_text_makes_it_raise(text: str) -> None:
    assert isinstance(parse_capability(text), Access | str)


@requirement("kaged:manifest-capability-conflict")
@pytest.mark.parametrize(
    ("capabilities", "count"),
    [
        ([], 0),
        (["net:[]"], 0),
        (["net:[]", "net:[]"], 0),
        (["net:*", "net:example.com:443"], 0),
        (["net:[]", "kaged:storage:read", "read:fs:/x"], 0),
        (["net:[]", "net:*"], 1),
        (["net:example.com:443", "net:[]", "net:*"], 1),
    ],
)
def test_no_network_stands_beside_no_other_network(capabilities: list[str], count: int) -> None:
    assert len(conflicts(capabilities)) == count
