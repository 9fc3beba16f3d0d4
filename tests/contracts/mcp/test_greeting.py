"""The greeting: what is said, when the other era is tried, and whom a host cannot stay with."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.mcp.greeting import Greeting, Welcome
from plugbay.contracts.mcp.messages import CAPABILITIES, CLIENT, HANDSHAKE, MODERN, REVISIONS, VERSION
from plugbay.model.errors import Code, Failure, Origin
from tests.contracts.mcp.talk import ALL, ME, discovered, welcome
from tests.support.requirements import requirement


def greeting(era: str = HANDSHAKE) -> Greeting:
    """One that has opened."""
    made = Greeting(era, ME, frozenset({"roots"}))
    made.build_opening()
    return made


def welcomed(verdict: Any) -> Welcome:
    assert isinstance(verdict, Welcome), verdict
    return verdict


@requirement("mcp:wire-initialize")
def test_a_host_opens_with_initialize_in_the_newest_revision() -> None:
    said = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": ME}
    assert Greeting(HANDSHAKE, ME, frozenset({"roots"})).build_opening() == ("initialize", said)


@requirement("mcp:wire-discover")
def test_in_the_modern_era_it_opens_with_a_question() -> None:
    meta = {VERSION: "2026-07-28", CLIENT: ME, CAPABILITIES: {}}
    assert Greeting(MODERN, ME, frozenset()).build_opening() == ("server/discover", {"_meta": meta})


@requirement("mcp:wire-version")
@pytest.mark.parametrize("version", REVISIONS)
def test_every_revision_that_we_know_is_accepted(version: str) -> None:
    accepted = welcomed(greeting().take_result(welcome(protocolVersion=version)))
    assert (accepted.version, accepted.warnings) == (version, [])


@requirement("mcp:wire-version")
@pytest.mark.parametrize("version", ["2024-10-07", "2027-01-01", "2026-07-28"])
def test_a_revision_that_we_do_not_know_is_refused_with_what_both_speak(version: str) -> None:
    failure = greeting().take_result(welcome(protocolVersion=version))
    assert isinstance(failure, Failure)
    assert failure.code == Code.PROTOCOL_VERSION_MISMATCH
    assert version in failure.message and "2025-11-25" in failure.message


@requirement("mcp:wire-tolerance")
@pytest.mark.parametrize("version", [..., None, "", "1.0", "latest", 2, "2025-11-2x", "2025/11/25", ["2025-11-25"]])
def test_nonsense_in_the_place_of_a_revision_is_taken_as_the_one_asked_for(version: Any) -> None:
    accepted = welcomed(greeting().take_result(welcome(protocolVersion=version)))
    assert accepted.version == "2025-11-25"
    assert len(accepted.warnings) == 1


@requirement("mcp:wire-tolerance")
@pytest.mark.parametrize(
    ("info", "server", "warnings"),
    [
        ({"name": "n", "version": "1"}, {"name": "n", "version": "1"}, 0),
        ({"name": "n", "version": "1", "title": "T"}, {"name": "n", "version": "1", "title": "T"}, 0),
        ({"name": "n", "version": "1", "title": None}, {"name": "n", "version": "1"}, 0),
        ({"name": "n"}, {"name": "n", "version": ""}, 1),
        ({"name": "n", "version": None}, {"name": "n", "version": ""}, 1),
        ({}, {"name": "", "version": ""}, 2),
        (None, {"name": "", "version": ""}, 2),
        (..., {"name": "", "version": ""}, 2),
    ],
)
def test_a_server_that_does_not_say_who_it_is_may_stay(info: Any, server: dict[str, str], warnings: int) -> None:
    accepted = welcomed(greeting().take_result(welcome(serverInfo=info)))
    assert (accepted.server, len(accepted.warnings)) == (server, warnings)


def test_instructions_belong_to_the_server() -> None:
    accepted = welcomed(greeting().take_result(welcome(instructions="be nice")))
    assert accepted.server == {"name": "notes", "version": "2.0", "instructions": "be nice"}
    assert "instructions" not in welcomed(greeting().take_result(welcome(instructions=None))).server


@requirement("mcp:wire-tolerance")
@pytest.mark.parametrize("capabilities", [..., None, [], "x"])
def test_a_server_without_capabilities_announces_none(capabilities: Any) -> None:
    accepted = welcomed(greeting().take_result(welcome(capabilities=capabilities)))
    assert (accepted.capabilities, accepted.warnings) == ({}, ["announces no capabilities"])


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
@pytest.mark.parametrize("result", [None, 5, [], "hello"])
def test_an_answer_that_is_no_object_is_no_greeting(era: str, result: Any) -> None:
    failure = greeting(era).take_result(result)
    assert isinstance(failure, Failure) and failure.code == Code.HANDSHAKE_FAILED


@requirement("mcp:wire-discover")
def test_a_modern_server_says_who_it_is_in_meta() -> None:
    accepted = welcomed(greeting(MODERN).take_result(discovered(instructions="x")))
    assert accepted == Welcome("2026-07-28", {"name": "notes", "version": "2.0", "instructions": "x"}, ALL, [])


# The other era.


@requirement("mcp:wire-era-fallback")
@pytest.mark.parametrize("number", [-32601, -32602, -32600, -32022])
def test_a_server_that_does_not_know_initialize_is_asked_in_the_modern_era(number: int) -> None:
    each = greeting()
    assert each.take_error({"code": number, "message": "what?"}) is None
    assert each.era == MODERN
    assert each.build_opening()[0] == "server/discover"


@requirement("mcp:wire-era-fallback")
@pytest.mark.parametrize("number", [-32603, -32000, 5, None, "x", []])
def test_any_other_refusal_is_final(number: Any) -> None:
    failure = greeting().take_error({"code": number, "message": "no key"})
    assert isinstance(failure, Failure)
    assert (failure.code, failure.origin) == (Code.HANDSHAKE_FAILED, Origin.PLUGIN)
    assert failure.message == "the server refused the greeting (initialize: no key)"


@requirement("mcp:wire-era-fallback")
@pytest.mark.parametrize("error", [{"code": -32601, "message": "?"}, {"code": -32603, "message": "?"}, None, "x"])
def test_a_server_that_was_modern_and_no_longer_is_gets_its_handshake(error: Any) -> None:
    each = greeting(MODERN)
    assert each.take_error(error) is None
    assert (each.era, each.build_opening()[0]) == (HANDSHAKE, "initialize")


@requirement("mcp:wire-era-fallback")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
def test_every_way_is_tried_once(era: str) -> None:
    each = greeting(era)
    assert each.take_error({"code": -32601, "message": "one"}) is None
    each.build_opening()
    failure = each.take_error({"code": -32601, "message": "two"})
    assert isinstance(failure, Failure)
    assert failure.code == Code.HANDSHAKE_FAILED
    assert "one" in failure.message and "two" in failure.message
    assert failure.detail == {"plugin_code": -32601}


@requirement("mcp:wire-unsupported-version")
@pytest.mark.parametrize(
    ("era", "supported", "then"),
    [
        (HANDSHAKE, ["2024-11-05"], (HANDSHAKE, "2024-11-05")),
        (HANDSHAKE, ["2024-11-05", "2025-06-18", "x"], (HANDSHAKE, "2025-06-18")),
        (HANDSHAKE, ["2026-07-28"], (MODERN, "2026-07-28")),
        (MODERN, ["2025-11-25", "2025-06-18"], (HANDSHAKE, "2025-11-25")),
        (MODERN, [["x"], {}, None, "2024-11-05"], (HANDSHAKE, "2024-11-05")),
    ],
)
def test_a_refusal_that_names_revisions_is_followed(era: str, supported: list[Any], then: tuple[str, str]) -> None:
    each = greeting(era)
    error = {"code": -32022, "message": "Unsupported", "data": {"supported": supported, "requested": "x"}}
    assert each.take_error(error) is None
    assert (each.era, each.version) == then


@requirement("mcp:wire-unsupported-version")
def test_without_a_common_revision_there_is_nothing_to_say() -> None:
    failure = greeting(MODERN).take_error({"code": -32022, "data": {"supported": ["2027-01-01", 5]}})
    assert isinstance(failure, Failure)
    assert (failure.code, failure.detail["supported"]) == (Code.PROTOCOL_VERSION_MISMATCH, ["2027-01-01"])


@requirement("mcp:wire-unsupported-version")
def test_a_server_found_to_speak_only_an_older_revision_is_greeted_in_that() -> None:
    each = greeting(MODERN)
    assert each.take_result(discovered(supportedVersions=["2025-06-18"])) is None
    assert (each.era, each.version) == (HANDSHAKE, "2025-06-18")
    each = greeting(MODERN)
    failure = each.take_result(discovered(supportedVersions=["2030-01-01"]))
    assert isinstance(failure, Failure) and failure.code == Code.PROTOCOL_VERSION_MISMATCH


@requirement("mcp:wire-tolerance")
@pytest.mark.parametrize("supported", [..., None, "2026-07-28"])
def test_a_modern_server_that_names_no_versions_speaks_the_one_asked_for(supported: Any) -> None:
    accepted = welcomed(greeting(MODERN).take_result(discovered(supportedVersions=supported)))
    assert (accepted.version, len(accepted.warnings)) == ("2026-07-28", 1)
