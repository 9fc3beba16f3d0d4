"""Pages of trusted publishers: the fingerprint is shown before a key is trusted, replaced or revoked."""

from __future__ import annotations

import base64
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from plugbay.packages import keys
from plugbay.server.domain.credentials import operator_token
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import OPERATOR
from plugbay.store.pages import Page
from tests.server.dashboard.pages.test_orgs import actions
from tests.support.dashboards import text_of, visitor_of
from tests.support.gateways import gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind


def fresh_key() -> tuple[str, str]:
    """A public key in base64, and its fingerprint."""
    public = keys.public_of(Ed25519PrivateKey.generate())
    return base64.b64encode(public).decode(), keys.key_id(public)


def confirmed(gateway: Gateway) -> dict[str, str]:
    """The answer of the operator to the question."""
    return {"confirm": "yes", "token": operator_token(gateway.settings.data)[0]}


async def trusted(gateway: Gateway) -> dict[str, bool]:
    """Whether each key is trusted still."""
    part = await gateway.trusted_publishers.page(OPERATOR, Page(200))
    return {key.key_id: not key.revoked for key in part.items}


def test_a_key_is_trusted_after_its_fingerprint_was_shown(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            assert "plugbay publisher trust" in (await visitor.get("/publishers")).text
            public, fingerprint = fresh_key()
            form = {"publisher": "acme", "public_key": public, "other_keys": "refuse"}
            asked = await visitor.post("/publishers", form)
            assert f"fingerprint {fingerprint}" in text_of(asked) and "Trust acme?" in text_of(asked)
            assert fingerprint not in await trusted(gateway)
            assert (await visitor.post("/publishers", form | confirmed(gateway))).status_code == 303
            assert (await trusted(gateway))[fingerprint] and (await actions(gateway))[-1] == "trust.add"
            assert f"acme {fingerprint} trusted" in text_of(await visitor.get("/publishers?search=ACME"))
            assert "Nothing found" in text_of(await visitor.get("/publishers?search=nobody"))
            for wrong in (
                {"public_key": "short"},
                {"public_key": "<script>x</script>"},
                {"publisher": ""},
                {"publisher": "no/good"},
                {"other_keys": "x"},
            ):
                refused = await visitor.post("/publishers", form | wrong)
                assert refused.status_code in (400, 422), wrong
                assert "<script>x" not in refused.text

    run(main)


def test_a_session_without_the_operator_token_trusts_no_key(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            of_org = await make_key(gateway, "org_1")
            public, fingerprint = fresh_key()
            form = {"publisher": "acme", "public_key": public, "other_keys": "refuse", "confirm": "yes"}
            for token in ("", "wrong", "x" * 10_000, of_org):
                refused = await visitor.post("/publishers", form | {"token": token})
                assert refused.status_code == 422 and "not the operator token" in text_of(refused)
                assert "Trust acme?" in text_of(refused) and f"fingerprint {fingerprint}" in text_of(refused)
                assert not token or f'value="{token}"' not in refused.text, "a page repeats no token"
            assert await trusted(gateway) == {}
            assert (await visitor.post("/publishers", form | confirmed(gateway))).status_code == 303
            assert (await trusted(gateway))[fingerprint]

    run(main)


def test_another_key_of_a_publisher_needs_a_decision(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        publisher = Publisher(tmp_path, tmp_path)
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            binding = await bind(gateway, await publisher.bring(gateway))
            public, fingerprint = fresh_key()
            form = {"publisher": "acme", "public_key": public, **confirmed(gateway)}
            refused = await visitor.post("/publishers", form | {"other_keys": "refuse"})
            assert refused.status_code == 409 and publisher.key_id in text_of(refused)
            asked = await visitor.post("/publishers", {**form, "other_keys": "replace", "confirm": ""})
            words = text_of(asked)
            assert f"replaces {publisher.key_id}" in words and "Replace the key" in words
            assert (await trusted(gateway))[publisher.key_id], "nothing is done yet"
            assert (await visitor.post("/publishers", form | {"other_keys": "replace"})).status_code == 303
            assert "Quarantined packages: 1; disabled bindings: 1." in text_of(await visitor.get("/publishers"))
            now = await trusted(gateway)
            assert now[fingerprint] and not now.get(publisher.key_id, False)
            assert (await gateway.bindings.get(OPERATOR, binding.id)).status == "disabled"

    run(main)


def test_a_key_is_revoked_after_a_confirmation(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        publisher = Publisher(tmp_path, tmp_path)
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            path = f"/publishers/{publisher.key_id}:revoke"
            assert f'action="{path}"' in (await visitor.get("/publishers")).text
            asked = await visitor.post(path)
            assert publisher.key_id in text_of(asked) and (await trusted(gateway))[publisher.key_id]
            assert (await visitor.post(path, {"confirm": "yes"})).status_code == 303
            assert not (await trusted(gateway))[publisher.key_id] and (await actions(gateway))[-1] == "trust.revoke"
            page = await visitor.get("/publishers")
            assert "revoked" in text_of(page) and path not in page.text
            assert (await visitor.post("/publishers/nobody:revoke", {"confirm": "yes"})).status_code == 404

    run(main)
