"""From a card to a package, a binding and an invocation."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from plugbay.host.disk import tree
from plugbay.host.request import CallRequest
from plugbay.packages import keys
from plugbay.packages import signature as signatures
from plugbay.packages.installer import verify
from plugbay.packages.package import read_folder, read_signature
from plugbay.packages.trust import TrustedKey
from plugbay.server.domain import marketplace
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.marketplace import CARDS, CATALOGUE, PUBLISHER_KEY, Artifact, NewEntry
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.store.packages import PackageRow
from plugbay.store.pages import Page
from tests.packages.builders import key
from tests.support.clocks import TurnedClock
from tests.support.gateways import code_of, gateway_at, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher
from tests.support.requirements import requirement
from tests.support.vai import export

ADMIN = Principal("key", "org_1", role="admin", key_id="key_1")


def said(kind: str, text: str, number: int) -> dict[str, Any]:
    return {"id": f"blk_{number}", "kind": kind, "content": [{"type": "text", "text": text}]}


BLOCKS = [said("system", "You write code.", 0)] + [
    said(kind, f"{kind} {number} " + "words " * 40, number)
    for number in range(1, 21)
    for kind in (("input", "response")[number % 2],)
]


@requirement("vai:control-marketplace-install", "vai:control-thread-weave", "vai:control-marketplace-signed")
def test_thread_weave_is_installed_signed_and_really_compacts(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            card = await gateway.marketplace.card("thread-weave")
            policy = {"installable": True, "reasons": [], "requires_lock": False, "lock_file": None}
            assert card["install_policy"] == policy
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
            cards = (await gateway.marketplace.page(Page())).items
            assert [card["id"] for card in cards] == ["openai-codex-harness", "opencode-harness", "thread-weave"]
            assert (await gateway.packages.page(OPERATOR, Page())).items == ()

    run(main)


@requirement("vai:control-marketplace-signed")
def test_built_in_packages_are_signed_by_their_publisher_and_no_key_of_the_server_signs(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    public = keys.load_public(PUBLISHER_KEY)
    for folder in (path for path in CATALOGUE.iterdir() if (path / "vai-plugin.toml").exists()):
        package = read_folder(folder, to_pack=True)
        data = read_signature(folder)
        assert data is not None, f"plugbay sign {folder} --key KEY, and KEY.pub is {PUBLISHER_KEY.name}"
        signatures.check(signatures.read(data), public, package)

    async def main() -> None:
        cards = []
        for _ in range(2):
            async with gateway_at(sqlite_url, tmp_path) as gateway:
                cards.append(await gateway.marketplace.card("thread-weave"))
        assert cards[0] == cards[1]
        signature = cards[0]["signature"]
        assert (signature["key_id"], signature["publisher"]) == (keys.key_id(public), "plugbay")
        assert signature["status"] == "verified" and signature["signed_at"].endswith("Z")
        assert [path.name for path in tmp_path.rglob("*.key")] == ["secret.key"], "it seals secrets and signs nothing"

    run(main)


@requirement("vai:control-marketplace-signed")
def test_a_publisher_that_the_operator_no_longer_trusts_makes_cards_uninstallable(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    own = TrustedKey(keys.public_of(key()), "plugbay")

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            card = await gateway.marketplace.card("thread-weave")
            assert card["signature"]["status"] == "verified"
            assert len(gateway.releases.trust.add(own, "replace")) == 1
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            assert (await gateway.marketplace.card("thread-weave"))["signature"]["status"] == "untrusted"
            with pytest.raises(GatewayError) as caught:
                await gateway.marketplace.install(OPERATOR, "thread-weave", "org_1", None, {}, {})
            assert [reason["code"] for reason in caught.value.details["reasons"]] == ["signature_not_verified"]
            assert gateway.releases.trust.keys() == [own], "not trusted again"

    run(main)


@requirement("vai:control-marketplace-signed")
def test_a_built_in_package_whose_signature_is_wrong_or_missing_is_shown_as_such(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = tmp_path / "catalogue"
    shutil.copytree(CATALOGUE, catalogue)
    monkeypatch.setattr(marketplace, "CATALOGUE", catalogue)

    async def main() -> None:
        for status, code in (("invalid", "signature_not_verified"), ("missing", "signature_not_verified")):
            if status == "invalid":
                (catalogue / "thread_weave" / "README.md").write_text("changed")
            else:
                (catalogue / "thread_weave" / "marketplace.signature.json").unlink()
            async with gateway_at(sqlite_url, tmp_path) as gateway:
                card = await gateway.marketplace.card("thread-weave")
                assert card["signature"]["status"] == status
                assert [reason["code"] for reason in card["install_policy"]["reasons"]] == [code]

    run(main)


NO_PERMISSIONS = {"network": "none", "filesystem": "none", "gateway_api_scopes": [], "secret_slots": []}


def entry(package: PackageRow, **fields: Any) -> NewEntry:
    return replace(NewEntry("jira", package.id, "t", "https://example.com", ("v1",), reviewed=True), **fields)


@requirement("vai:control-marketplace-publish", "vai:control-marketplace-signed")
def test_the_operator_publishes_a_package_of_a_trusted_publisher_and_orgs_install_it(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    clock = TurnedClock()

    async def main() -> None:
        async with gateway_at(database_url, tmp_path, clock=clock) as gateway:
            await make_org(gateway)
            publisher = Publisher(tmp_path, tmp_path)
            package = await publisher.bring(gateway, exports=[export("t"), export("x", "harness")])
            card = await gateway.marketplace.publish(OPERATOR, entry(package))
            assert card == await gateway.marketplace.card("jira")
            assert card["publisher"] == {"id": "acme", "name": "acme", "first_party": False}
            signature = card["signature"]
            assert (signature["status"], signature["key_id"]) == ("verified", publisher.key_id)
            assert (signature["publisher"], signature["signed_at"]) == ("acme", "2026-11-15T12:00:00Z")
            assert card["source"] == {"repo": "https://example.com", "refs": ["v1"]}
            assert card["contract"]["permissions"] == NO_PERMISSIONS and "tool" in card["contract"]
            assert (card["kind"], card["version"], card["oci"]["digest"]) == ("tool", "1.0.0", package.digest)
            clock.turn(1)
            harness = await gateway.marketplace.publish(OPERATOR, entry(package, id="x", export_id="x", reviewed=False))
            codes = [reason["code"] for reason in harness["install_policy"]["reasons"]]
            assert codes == ["not_reviewed", "dependency_lock_missing"]
            part = await gateway.marketplace.page(Page(limit=4))
            rest = await gateway.marketplace.page(Page(limit=4, after=part.after))
            assert [item["id"] for item in (*part.items, *rest.items)][3:] == ["x", "jira"] and rest.after is None

            installed, binding = await gateway.marketplace.install(ADMIN, "jira", "org_1", "proj_1", {}, {})
            assert installed == package and (binding.package_row, binding.status) == (package.id, "active")
            with pytest.raises(GatewayError) as caught:
                await gateway.packages.delete(OPERATOR, package.id)
            assert caught.value.details["marketplace_entries"] == ["x", "jira"]
            gone = await gateway.marketplace.unpublish(OPERATOR, "jira")
            assert gone == card and await code_of(gateway.marketplace.card("jira")) == "card.not_found"
            assert (await gateway.bindings.get(ADMIN, binding.id)).status == "active"
            audited = [item.action for item in (await gateway.audit.page(OPERATOR, Page(), subject_id="jira")).items]
            assert sorted(audited) == ["marketplace.publish", "marketplace.unpublish"]

    run(main)


@requirement("vai:control-marketplace-signed")
def test_a_package_that_was_signed_after_its_upload_is_published_and_no_upload_takes_its_signature_away(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, clock=TurnedClock()) as gateway:
            await make_org(gateway)
            (tmp_path / "elsewhere").mkdir()
            publisher, stranger = Publisher(tmp_path, tmp_path), Publisher(tmp_path / "elsewhere", tmp_path)
            packed = publisher.pack()
            for signature in (None, stranger.sign(packed), publisher.sign(packed)):
                package, _ = await gateway.packages.upload(OPERATOR, packed.path, signature)
            published = await gateway.marketplace.publish(OPERATOR, entry(package))
            second = Publisher(tmp_path, tmp_path)
            for signature in (None, stranger.sign(packed), second.sign(packed)):
                await gateway.packages.upload(ADMIN, packed.path, signature)
                assert await gateway.marketplace.card("jira") == published
            assert published["signature"]["key_id"] == publisher.key_id

    run(main)


@requirement("vai:control-marketplace-publish", "vai:control-marketplace-signed")
def test_an_entry_is_published_by_rules_and_its_signature_is_verified_again(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, clock=TurnedClock()) as gateway:
            await make_org(gateway)
            market, publisher = gateway.marketplace, Publisher(tmp_path, tmp_path)
            package = await publisher.bring(gateway, exports=[export("x", "harness")])
            unsigned, _ = await gateway.packages.upload(OPERATOR, publisher.pack(version="2.0.0").path)
            of_org = await publisher.bring(gateway, version="3.0.0", caller=ADMIN)
            good = entry(package, export_id="x", lock_file="bin/plugin")
            for caller, new, code in (
                (ADMIN, good, "auth.role_denied"),
                (OPERATOR, replace(good, package="pkg_none"), "package.not_found"),
                (OPERATOR, replace(good, package=unsigned.id), "marketplace.signature_not_verified"),
                (OPERATOR, replace(good, package=of_org.id), "marketplace.package_not_shared"),
                (OPERATOR, replace(good, export_id="t"), "marketplace.unknown_export"),
                (OPERATOR, replace(good, lock_file="uv.lock"), "marketplace.lock_file_missing"),
                (OPERATOR, replace(good, id="thread-weave"), "marketplace.entry_exists"),
            ):
                assert await code_of(market.publish(caller, new)) == code
            card = await market.publish(OPERATOR, good)
            assert card["install_policy"]["installable"] and card["install_policy"]["lock_file"] == "bin/plugin"
            assert await code_of(market.publish(OPERATOR, good)) == "marketplace.entry_exists"
            assert await code_of(market.unpublish(ADMIN, "jira")) == "auth.role_denied"
            assert await code_of(market.unpublish(OPERATOR, "thread-weave")) == "marketplace.builtin"
            assert await code_of(market.unpublish(OPERATOR, "none")) == "card.not_found"

            root = gateway.releases.folder(package.digest, package.package_id)
            program = root / "bin" / "plugin"
            before = program.read_text()
            program.chmod(0o755)
            program.write_text(before + "\n")
            code = await code_of(market.install(OPERATOR, "jira", "org_1", None, {}, {}))
            assert code == "package.tampered", "the files are hashed before an installation"
            program.write_text(before)
            own = publisher.pack("# of the org", [export("x", "harness")])
            await gateway.packages.upload(ADMIN, own.path, publisher.sign(own))
            code = await code_of(market.install(OPERATOR, "jira", "org_1", None, {}, {}))
            assert code == "marketplace.own_package" and not (await gateway.bindings.page(ADMIN, Page())).items

    run(main)


@requirement("vai:control-marketplace-signed")
def test_the_signature_of_an_entry_is_verified_for_each_list_and_installation(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, clock=TurnedClock()) as gateway:
            await make_org(gateway)
            market, publisher = gateway.marketplace, Publisher(tmp_path, tmp_path)
            package = await publisher.bring(gateway)
            await market.publish(OPERATOR, entry(package))
            other = publisher.pack("# other")
            root = gateway.releases.folder(package.digest, package.package_id)
            stored = root / "marketplace.signature.json"
            stored.chmod(0o644)
            signed = stored.read_bytes()
            for changed, status in (
                (signed.replace(b"T12:00:00Z", b"T12:00:01Z"), "invalid"),
                (publisher.sign(other), "invalid"),
                (b"rubbish", "invalid"),
            ):
                stored.write_bytes(changed)
                assert (await market.card("jira"))["signature"]["status"] == status
            stored.write_bytes(signed)
            gateway.releases.trust.path.chmod(0o666)
            for id in ("jira", "thread-weave"):
                assert await code_of(market.card(id)) == "package.trust_unreadable"
            gateway.releases.trust.path.chmod(0o600)
            await gateway.trusted_publishers.remove(OPERATOR, publisher.key_id)
            shown = await market.card("jira")
            assert shown["signature"]["status"] == "untrusted" and shown["signature"]["publisher"] is None
            code = await code_of(market.install(OPERATOR, "jira", "org_1", None, {}, {}))
            assert code == "marketplace.not_installable"
            tree.remove(root)
            lost = (await market.page(Page())).items[-1]
            assert (lost["name"], lost["signature"]["status"]) == (shown["name"], "missing")
            assert await market.unpublish(OPERATOR, "jira") == lost

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
    assert shown["signature"] == {"status": "verified", "key_id": "k", "publisher": None, "signed_at": None}
    assert shown["oci"] == {"ref": "builtin:x", "digest": "sha256:1"} and shown["source"]["refs"]
