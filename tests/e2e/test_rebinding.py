"""Names whose real name server gives another address each time: connections go to checked addresses alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rebinding import CANARIES, LOOKUPS, REACHED
from tests.support.name_server import in_a_network_of_its_own


def asked(way: str, folder: Path) -> dict[str, Any]:
    done = in_a_network_of_its_own("tests.e2e.rebinding", folder, way)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("way", "refused"), [("proxy", {"403", "502"}), ("fetcher", {"capability_not_allowed", "invalid_input"})]
)
def test_a_name_that_changes_its_address_leads_to_granted_addresses_alone(
    tmp_path: Path, way: str, refused: set[str]
) -> None:
    found = asked(way, tmp_path)
    reached = {title for title, outcome in found["outcomes"].items() if outcome == "200"}
    assert reached == REACHED
    assert {outcome for title, outcome in found["outcomes"].items() if title not in REACHED} <= refused
    assert found["canaries"] == {}
    assert found["granted"] == len(REACHED)
    assert found["lookups"] == len(LOOKUPS), "each request asks once"


def test_without_a_guard_the_same_name_leads_everywhere(tmp_path: Path) -> None:
    """The positive control: the canaries can be reached, and the resolver of the system believes the name server."""
    found = asked("naive", tmp_path)
    assert set(found["canaries"]) == set(CANARIES)
    assert found["outcomes"]["an alias of a private name"] == "200"
