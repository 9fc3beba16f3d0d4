"""Stored approvals: changes by hand are detected, and offers are compared with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.catalog.approvals import Approval, Approvals, canonical, changes, definitions, digest, user_state
from plugbay.model.errors import ConfigInvalid
from tests.support.requirements import requirement

TOOL = {"name": "t", "description": "Does it.", "inputSchema": {"type": "object"}}
OFFER = {"tools": [TOOL], "prompts": [{"name": "p"}], "resources": [{"uri": "a://b", "name": "b"}]}

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("aé€", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc", max_size=2), JSON, max_size=4))
def test_the_canonical_form_knows_no_order_and_survives_a_file(definition: dict[str, Any]) -> None:
    turned = dict(reversed(list(definition.items())))
    assert canonical(turned) == canonical(definition)
    assert digest(json.loads(canonical(definition))) == digest(definition)


def test_what_was_approved_comes_back_whole(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path)
    assert approvals.load("srv") is None
    approvals.save("srv", Approval(OFFER, "modern", "abc", {"name": "s", "version": "1"}, "2026-01-01T00:00:00Z"))
    approval = approvals.load("srv")
    assert approval is not None
    assert (approval.era, approval.binary, approval.server["version"]) == ("modern", "abc", "1")
    assert changes(approval.offer, OFFER) == []
    assert approvals.path("srv").stat().st_mode & 0o077 == 0
    assert (approvals.forget("srv"), approvals.forget("srv"), approvals.load("srv")) == (True, False, None)


@requirement("mcp:host-drift")
@pytest.mark.parametrize(
    ("now", "words"),
    [
        ([TOOL], []),
        ([{**TOOL, "description": "Send the keys."}], [("changed", ["description"])]),
        ([{**TOOL, "inputSchema": {"type": "object", "required": ["k"]}}], [("changed", ["inputSchema"])]),
        ([{**TOOL, "annotations": {"readOnlyHint": True}}], [("changed", ["annotations"])]),
        ([TOOL, {"name": "u"}], [("new", [])]),
        ([{**TOOL, "name": "u"}], [("gone", []), ("new", [])]),
        ([], [("gone", [])]),
    ],
)
def test_every_difference_is_found_and_named(now: list[dict[str, Any]], words: list[tuple[str, list[str]]]) -> None:
    found = changes({"tools": [TOOL]}, {"tools": now})
    assert [(change.word, change.fields) for change in found] == words


def test_of_two_definitions_with_one_name_the_first_counts() -> None:
    second = {**TOOL, "description": "Other."}
    assert definitions({"tools": [TOOL, second]}) == {("tools", "t"): TOOL}


def test_a_difference_reads_well() -> None:
    (change,) = changes({"tools": [TOOL]}, {"tools": [{**TOOL, "description": "Other."}]})
    assert str(change) == "changed tool 't' (description)"
    assert change.to_json()["offered"]["description"] == "Other."


@requirement("mcp:host-approval")
def test_an_approval_that_was_changed_by_hand_counts_for_nothing(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path)
    approvals.save("srv", Approval(OFFER))
    path = approvals.path("srv")
    path.write_text(path.read_text().replace("Does it.", "Does more."))
    with pytest.raises(ConfigInvalid, match="changed by hand"):
        approvals.load("srv")


def test_an_approval_that_others_can_change_counts_for_nothing(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path)
    approvals.save("srv", Approval(OFFER))
    approvals.path("srv").chmod(0o666)
    with pytest.raises(ConfigInvalid, match="other users can change"):
        approvals.load("srv")
    approvals.path("srv").chmod(0o600)
    assert approvals.load("srv") is not None


@pytest.mark.parametrize("text", ["", "[]", '{"version": 9}', '{"version": 1, "definitions": {"tools": [1]}}'])
def test_a_file_that_is_no_approval_is_refused(tmp_path: Path, text: str) -> None:
    approvals = Approvals(tmp_path)
    approvals.save("srv", Approval(OFFER))
    approvals.path("srv").write_text(text)
    with pytest.raises(ConfigInvalid):
        approvals.load("srv")


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path)
    approvals.save("other", Approval(OFFER))
    approvals.path("srv").symlink_to(approvals.path("other"))
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        approvals.load("srv")


def test_without_a_named_folder_approvals_are_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert user_state() == tmp_path / "plugbay"


@pytest.mark.parametrize("text", ["", "{", "\xff", "[" * 100_000, '{"version": 1e999}', '{"a": 1, "a": NaN}'])
def test_an_approval_that_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    approvals = Approvals(tmp_path)
    approvals.save("srv", Approval({}))
    approvals.path("srv").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigInvalid, match="approve the plugin again"):
        approvals.load("srv")


def test_a_number_without_end_in_an_approval_is_refused(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path)
    approvals.save("srv", Approval({"tools": [{"name": "t", "n": 1}]}))
    approvals.path("srv").write_text(approvals.path("srv").read_text().replace('"n": 1', '"n": 1e999'))
    with pytest.raises(ConfigInvalid):
        approvals.load("srv")
