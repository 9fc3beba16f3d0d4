"""Cards: what is offered, and why it can or cannot be had."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plugbay.server.domain.cards import CARDS, Posture
from tests.support.requirements import requirement

GOOD = Posture("sha256:1", "verified", "k", "builtin:x", locked=True)
WEAVE = next(card for card in CARDS if card.id == "thread-weave")
CODEX = next(card for card in CARDS if card.id == "openai-codex-harness")


@requirement("vai:control-marketplace-cards")
def test_the_three_initial_entries_are_there_and_one_of_them_can_be_installed() -> None:
    names = ["OpenAI Codex Hosted Harness", "OpenCode Hosted Harness", "Thread Weave Compactor"]
    assert [card.name for card in CARDS] == names
    assert [card.status for card in CARDS] == ["contract_ready", "contract_ready", "available"]
    assert [card.to_json(GOOD)["install_policy"]["installable"] for card in CARDS] == [False, False, True]


@requirement("vai:control-marketplace-cards")
@pytest.mark.parametrize(
    ("posture", "codes"),
    [
        (Posture(), ["signature_not_verified", "digest_not_pinned"]),
        (replace(GOOD, signature="untrusted"), ["signature_not_verified"]),
        (replace(GOOD, digest=None), ["digest_not_pinned"]),
        (GOOD, []),
    ],
)
def test_an_available_card_needs_a_signature_that_counts_and_a_digest(posture: Posture, codes: list[str]) -> None:
    assert [reason["code"] for reason in WEAVE.reasons(posture)] == codes


def test_a_harness_needs_a_lock_and_what_nobody_reviewed_stays_where_it_is() -> None:
    reviewed = replace(CODEX, reviewed_at="2026-11-15", builtin="codex")
    assert [reason["code"] for reason in reviewed.reasons(replace(GOOD, locked=False))] == ["dependency_lock_missing"]
    assert reviewed.reasons(GOOD) == []
    codes = ["not_reviewed", "contract_ready"]
    assert [reason["code"] for reason in CODEX.reasons(GOOD)] == codes


def test_a_card_has_a_field_for_each_posture() -> None:
    shown = WEAVE.to_json(GOOD)
    assert shown["publisher"]["first_party"] and shown["review"]["state"] == "reviewed"
    assert shown["signature"] == {"status": "verified", "key_id": "k"}
    assert shown["oci"] == {"ref": "builtin:x", "digest": "sha256:1"} and shown["source"]["refs"]
