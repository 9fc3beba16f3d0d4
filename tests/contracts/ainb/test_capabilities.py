"""Grants become capabilities an operator can grant, and what they allow."""

from __future__ import annotations

import tomllib

import pytest

from plugbay.contracts.ainb.capabilities import access, admits, requested
from plugbay.contracts.ainb.messages import CAPABILITIES
from plugbay.model.spec import Access
from tests.contracts.ainb.manifests import asking, good, problems, reported
from tests.support.requirements import requirement


@requirement("ainb:manifest-capabilities")
@pytest.mark.parametrize("name", CAPABILITIES)
def test_every_capability_may_be_asked_for_or_not(name: str) -> None:
    assert requested({name: False}) == requested({name: []}) == requested({}) == ()
    assert requested({name: True}) == (name,)
    assert requested({name: ["/a", "/b"]}) == (f"{name}=/a", f"{name}=/b")
    assert problems(asking(f'"{name}" = []')) == problems(asking(f'"{name}" = false')) == []


@requirement("ainb:manifest-grants")
@pytest.mark.parametrize(
    ("grants", "expected"),
    [
        ("", ()),
        ("event_bus = true", ("event_bus",)),
        ("event_bus = false", ()),
        ("network = []", ()),
        ('network = ["api.openai.com"]', ("network=api.openai.com",)),
        ('event_bus = ["usage.*", "a=b"]', ("event_bus=usage.*", "event_bus=a=b")),
        ('read_paths = ["~/notes", "~/notes"]', ("read_paths=~/notes",)),
        ("read_codex_logs = true\nread_sessions = true", ("read_sessions", "read_codex_logs")),
        ('"secrets:read" = ["a"]\n"workspace:write" = true', ("secrets:read=a", "workspace:write")),
        ('unix_socket_dial = ["${XDG_RUNTIME_DIR}/a.sock"]', ("unix_socket_dial=${XDG_RUNTIME_DIR}/a.sock",)),
        ('event_stream_subscribe = ["workspace:*"]', ("event_stream_subscribe=workspace:*",)),
        ('spawn_managed_subprocess = ["a"]', ("spawn_managed_subprocess=a",)),
    ],
)
def test_true_asks_for_the_capability_and_a_list_for_each_of_its_entries(
    grants: str, expected: tuple[str, ...]
) -> None:
    assert good(asking(grants)).capabilities == expected


@requirement("ainb:manifest-access")
@pytest.mark.parametrize(
    ("grants", "expected"),
    [
        ("event_bus = true", [("topic", "", None)]),
        ('event_bus = ["usage.*"]', [("topic", "usage.*", None)]),
        ("network = true", [("network", "", None)]),
        ('network = ["API.OpenAI.com"]', [("network", "api.openai.com", None)]),
        ('network = ["a.b:8080"]', [("network", "a.b", 8080)]),
        ('network = ["10.0.0.1"]', [("network", "10.0.0.1", None)]),
        ('network = ["[0:0::1]:443"]', [("network", "::1", 443)]),
        (
            "read_sessions = true",
            [
                ("read_path", "~/.agents-in-a-box/sessions", None),
                ("read_path", "~/.claude/agents-in-a-box/sessions", None),
            ],
        ),
        ("read_claude_logs = true", [("read_path", "~/.claude/projects", None)]),
        ("read_codex_logs = true", [("read_path", "~/.codex/sessions", None)]),
        ("write_plugin_data = true", [("own_path", "~/.agents-in-a-box/plugins/burndown", None)]),
        ("spawn_subprocess = true", [("run", "", None)]),
        ('spawn_subprocess = ["qmd"]', [("run", "qmd", None)]),
        (
            'read_paths = ["~/notes", "/srv", "~"]',
            [("read_path", "~/notes", None), ("read_path", "/srv", None), ("read_path", "~", None)],
        ),
        ("event_stream_subscribe = true", []),
        ('"secrets:read" = true\n"workspace:write" = true', []),
        ('spawn_managed_subprocess = ["a"]\nunix_socket_dial = ["/a"]', []),
    ],
)
def test_a_capability_allows_what_the_contract_says(grants: str, expected: list[tuple[str, str, int | None]]) -> None:
    spec = good(asking(grants))
    assert [(item.kind, item.target, item.port) for item in spec.access] == expected
    assert all(item.capability in spec.capabilities for item in spec.access)


def test_each_access_names_the_capability_that_an_operator_grants() -> None:
    assert access("p", ("network=a:1", "network")) == (
        Access("network", "a", 1, capability="network=a:1"),
        Access("network", capability="network"),
    )


@requirement("ainb:manifest-grants")
@pytest.mark.parametrize("grant", ['"true"', "1", "{}", "2026-01-01", "1.5"])
def test_a_grant_is_a_boolean_or_a_list(grant: str) -> None:
    assert problems(asking(f"network = {grant}")) == [("error", "invalid_grant", "capabilities.network")]


@requirement("ainb:manifest-grants")
@pytest.mark.parametrize("entry", ["1", "true", "[]", '""', '" "', '"a\\u0000"', '"a\\nb"'])
@pytest.mark.parametrize("name", ["event_bus", "spawn_subprocess", "read_sessions", '"secrets:read"'])
def test_an_entry_that_names_nothing_never_becomes_a_grant_of_everything(name: str, entry: str) -> None:
    found = problems(asking(f"{name} = [{entry}]"))
    assert ("error", "invalid_grant", f"capabilities.{name.strip(chr(34))}[0]") in found


@requirement("ainb:manifest-network")
@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("*", "wildcard"),
        ("*.openai.com", "wildcard"),
        ("https://api.openai.com", "must be the name"),
        ("api.openai.com/v1", "must be the name"),
        ("a:b", "must be the name"),
        ("a:0", "must be the name"),
        ("a:65536", "must be the name"),
        ("::1", "must be the name"),
        ("[::g]", "must be the name"),
        ("[1.2.3]", "must be the name"),
        ("127.1", "must be the name"),
        ("a..b", "must be the name"),
        ("-a", "must be the name"),
        ("a" * 64, "must be the name"),
        (".".join(["a" * 60] * 5), "must be the name"),
        ("bücher.example", "must be the name"),
    ],
)
def test_a_host_of_the_network_is_named_exactly(entry: str, words: str) -> None:
    (found,) = reported(asking(f'network = ["{entry}", "good.example"]'))
    assert (found.code, found.path, found.severity) == ("invalid_grant", "capabilities.network[0]", "error")
    assert words in found.message


@requirement("ainb:manifest-read-paths")
@pytest.mark.parametrize("path", ["notes", "./notes", "~root/x", "~/../x", "/srv/..", "../x"])
def test_a_path_to_read_is_absolute_and_what_it_looks_like(path: str) -> None:
    assert problems(asking(f'read_paths = ["{path}"]')) == [("error", "invalid_grant", "capabilities.read_paths[0]")]


@requirement("ainb:manifest-grant-without-effect")
@pytest.mark.parametrize(
    ("grants", "path"),
    [
        ("read_paths = true", "capabilities.read_paths"),
        ("spawn_managed_subprocess = true", "capabilities.spawn_managed_subprocess"),
        ("unix_socket_dial = true", "capabilities.unix_socket_dial"),
        ('read_sessions = ["a"]', "capabilities.read_sessions"),
        ('write_plugin_data = ["a"]', "capabilities.write_plugin_data"),
        ('"workspace:write" = ["a"]', "capabilities.workspace:write"),
    ],
)
def test_a_grant_in_a_form_that_means_nothing_allows_nothing_and_is_warned_about(grants: str, path: str) -> None:
    assert problems(asking(grants)) == [("warning", "grant_without_effect", path)]
    assert access("burndown", requested(tomllib.loads(grants))) == ()


def test_a_star_within_a_topic_stands_for_itself() -> None:
    assert problems(asking('event_bus = ["a.*.b"]')) == [
        ("warning", "grant_without_effect", "capabilities.event_bus[0]")
    ]
    assert problems(asking('event_bus = ["*"]')) == []


@requirement("ainb:manifest-unknown-keys")
def test_a_capability_nobody_knows_is_ignored_with_a_warning() -> None:
    (found,) = reported(asking("netwrk = true\nevent_bus = true"))
    assert (found.severity, found.code, found.path, found.line) == ("warning", "unknown_key", "capabilities.netwrk", 6)
    assert "did you mean 'network'?" in found.message
    assert requested({"netwrk": True, "event_bus": True}) == ("event_bus",)


@pytest.mark.parametrize(
    ("grants", "admitted"),
    [
        ({}, False),
        ({"event_bus": False}, False),
        ({"event_bus": []}, False),
        ({"event_bus": True}, True),
        ({"event_bus": ["usage.data"]}, True),
        ({"event_bus": ["usage.*"]}, True),
        ({"event_bus": ["*"]}, True),
        ({"event_bus": ["usage"]}, False),
        ({"event_bus": ["usage.data.x", "usag", 3]}, False),
    ],
)
def test_a_topic_is_covered_by_true_by_its_name_and_by_the_beginning_of_it(
    grants: dict[str, object], admitted: bool
) -> None:
    assert admits(grants, "usage.data") is admitted


def test_a_topic_of_the_host_is_covered_by_its_full_name_only() -> None:
    assert not admits({"event_bus": True}, "fleet.x")
    assert not admits({"event_bus": ["*", "fleet.*"]}, "fleet.x")
    assert admits({"event_bus": ["fleet.x"]}, "fleet.x")
