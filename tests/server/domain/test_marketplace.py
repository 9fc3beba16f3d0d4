"""From a card to a package, a binding and an invocation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.request import CallRequest
from plugbay.packages.installer import verify
from plugbay.packages.package import read_folder
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.marketplace import CARDS, Artifact
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.store.pages import Page
from tests.support.gateways import gateway_at, make_org
from tests.support.loops import Run
from tests.support.requirements import requirement

ADMIN = Principal("key", "org_1", role="admin", key_id="key_1")


def said(kind: str, text: str, number: int) -> dict[str, Any]:
    return {"id": f"blk_{number}", "kind": kind, "content": [{"type": "text", "text": text}]}


BLOCKS = [said("system", "You write code.", 0)] + [
    said(kind, f"{kind} {number} " + "words " * 40, number)
    for number in range(1, 21)
    for kind in (("input", "response")[number % 2],)
]


@requirement("vai:control-marketplace-install", "vai:control-thread-weave")
def test_thread_weave_is_installed_signed_and_really_compacts(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            card = await gateway.marketplace.card("thread-weave")
            assert card["install_policy"] == {"installable": True, "reasons": [], "requires_lock": False}
            where = (ADMIN, "thread-weave", "org_1", "proj_1")
            package, binding = await gateway.marketplace.install(*where, {"detail": 60}, {})
            assert (package.status, package.signature_status, package.org_id) == ("available", "verified", None)
            assert package.digest == card["oci"]["digest"] and package.key_id == card["signature"]["key_id"]
            assert (binding.status, binding.export_kind, binding.project_id) == ("active", "compactor", "proj_1")
            root = gateway.releases.folder(package.digest, package.package_id)
            held = read_folder(root, to_pack=False)
            kept = (root / "marketplace.signature.json").read_bytes()
            assert verify(held, kept, gateway.releases.trust, gateway.releases.clock()).key.publisher == "plugbay"

            again, changed = await gateway.marketplace.install(*where, {}, {})
            assert again == package and changed.id == binding.id and changed.config == {}
            assert len((await gateway.packages.page(OPERATOR, Page())).items) == 1

            request = {
                "source": {"chain_id": "ch_1", "projection": {"blocks": BLOCKS, "pinned_items": [BLOCKS[3]]}},
                "target": {"max_input_tokens": 700},
                "policy": {"retain_system": True},
            }
            work = CallRequest("thread_weave", request, org_id="org_1", project_id="proj_1")
            result = (await gateway.invocations.invoke(work)).value_or_raise()
            seed = result["seed_blocks"]
            assert result["token_estimate"] <= 700 and seed[0] == BLOCKS[0] and BLOCKS[3] in seed
            assert seed[-1] == BLOCKS[-1] and any("ch_1 blk_" in str(block["content"]) for block in seed)

    run(main)


@requirement("vai:control-marketplace-install")
def test_a_card_that_is_not_installable_lists_the_reasons(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            for id in ("openai-codex-harness", "opencode-harness"):
                with pytest.raises(GatewayError) as caught:
                    await gateway.marketplace.install(OPERATOR, id, "org_1", None, {}, {})
                assert (caught.value.status, caught.value.code) == (409, "marketplace.not_installable")
                codes = [reason["code"] for reason in caught.value.details["reasons"]]
                assert {"contract_ready", "digest_not_pinned", "dependency_lock_missing"} <= set(codes)
            with pytest.raises(GatewayError) as caught:
                await gateway.marketplace.card("none")
            assert caught.value.code == "card.not_found"
            assert [card["id"] for card in await gateway.marketplace.cards()][-1] == "thread-weave"
            assert (await gateway.packages.page(OPERATOR, Page())).items == ()

    run(main)


def test_a_revoked_first_party_key_makes_cards_uninstallable(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            card = await gateway.marketplace.card("thread-weave")
            gateway.releases.trust.revoke(card["signature"]["key_id"])
            with pytest.raises(GatewayError) as caught:
                await gateway.marketplace.install(OPERATOR, "thread-weave", "org_1", None, {}, {})
            assert [reason["code"] for reason in caught.value.details["reasons"]] == ["signature_not_verified"]

    run(main)


def test_the_archive_is_the_same_each_time_and_the_key_too(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        cards = []
        for _ in range(2):
            async with gateway_at(sqlite_url, tmp_path) as gateway:
                cards.append(await gateway.marketplace.card("thread-weave"))
        assert cards[0] == cards[1]
        assert (tmp_path / "marketplace" / "first-party.key").stat().st_mode & 0o777 == 0o600

    run(main)


GOOD = Artifact("sha256:1", "verified", "k", "builtin:x", locked=True)
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
        (Artifact(), ["signature_not_verified", "digest_not_pinned"]),
        (replace(GOOD, signature="untrusted"), ["signature_not_verified"]),
        (replace(GOOD, digest=None), ["digest_not_pinned"]),
        (GOOD, []),
    ],
)
def test_an_available_card_needs_a_signature_that_counts_and_a_digest(posture: Artifact, codes: list[str]) -> None:
    assert [reason["code"] for reason in WEAVE.reasons(posture)] == codes


def test_a_harness_needs_a_lock_and_a_card_needs_a_review() -> None:
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
