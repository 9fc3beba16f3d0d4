"""Pages of packages: uploaded with a signature, shown with what they ask for, deleted after a confirmation."""

from __future__ import annotations

from pathlib import Path

from plugbay.server.domain.principal import OPERATOR
from plugbay.store.pages import Page
from tests.server.dashboard.pages.test_orgs import actions
from tests.support.dashboards import ORIGIN, Visitor, text_of, visitor_of
from tests.support.gateways import gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.vai import export

EXPORTS = [
    export("t", description="<script>x</script>", permissions={"network": "egress", "secret_slots": ["key"]}),
    export("h", "hook"),
]


async def upload(visitor: Visitor, archive: bytes, signature: bytes = b"") -> tuple[int, str]:
    """Upload as the page does; returns the status, and the text or where it leads."""
    files = {"archive": ("../../x.tar.gz", archive), "signature": ("s.json", signature)}
    answer = await visitor.client.post(
        "/packages", data={"form_key": visitor.form_key}, files=files, headers={"origin": ORIGIN}
    )
    return answer.status_code, answer.headers.get("location") or text_of(answer)


def test_a_package_is_uploaded_and_shows_what_it_asks_for(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        publisher = Publisher(tmp_path, tmp_path)
        packed = publisher.pack(exports=EXPORTS)
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            empty = await visitor.get("/packages")
            assert "No packages yet" in text_of(empty) and "plugbay package add" in empty.text
            status, path = await upload(visitor, packed.path.read_bytes(), publisher.sign(packed))
            assert status == 303
            page = await visitor.get(path)
            words = text_of(page)
            assert "available" in words and "verified by acme" in words and publisher.key_id in words
            assert "network egress" in words and "secrets key" in words and "<script>x" not in page.text
            assert f"package={path.rpartition('/')[2]}&amp;export=t" in page.text, "it can be bound from here"
            assert (await upload(visitor, packed.path.read_bytes(), publisher.sign(packed)))[1] == path
            assert "here already" in text_of(await visitor.get(path))
            assert (await actions(gateway))[-1] == "package.create"
            assert "acme/p" in text_of(await visitor.get("/packages?search=ACME&status=available"))
            assert "Nothing found" in text_of(await visitor.get("/packages?search=other"))

    run(main)


def test_a_package_without_a_trusted_signature_cannot_be_bound(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        publisher = Publisher(tmp_path, tmp_path)
        packed, other = publisher.pack(), publisher.pack("# other")
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            status, path = await upload(visitor, packed.path.read_bytes())
            page = await visitor.get(path)
            assert "quarantined: its signature is missing" in text_of(page) and "/bindings/new" not in page.text
            status, text = await upload(visitor, other.path.read_bytes(), publisher.sign(packed))
            assert status in (409, 422), text
            assert (await upload(visitor, b"no archive"))[0] == 422
            assert len((await gateway.packages.page(OPERATOR, Page())).items) == 1

    run(main)


def test_a_registry_is_named_by_digest(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            for source in ("", "oci://registry.example/acme/p:1", "http://x"):
                refused = await visitor.post("/packages:pull", {"source": source})
                assert refused.status_code in (400, 422) and f'value="{source}"' in refused.text

    run(main)


def test_a_package_is_deleted_after_a_confirmation_unless_it_is_used(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            package = await Publisher(tmp_path, tmp_path).bring(gateway)
            binding = await bind(gateway, package)
            path = f"/packages/{package.id}"
            assert "Delete acme/p?" in text_of(await visitor.post(f"{path}:delete"))
            used = await visitor.post(f"{path}:delete", {"confirm": "yes"})
            assert used.status_code == 409 and binding.id in text_of(used)
            await gateway.bindings.delete(OPERATOR, binding.id)
            assert (await visitor.post(f"{path}:delete", {"confirm": "yes"})).status_code == 303
            assert (await visitor.get(path)).status_code == 404
            assert (await actions(gateway))[-1] == "package.delete"

    run(main)


def test_a_key_sees_its_packages_and_only_admins_add_them(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        publisher = Publisher(tmp_path, tmp_path)
        packed = publisher.pack(version="2.0.0")
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway, "org_1", "proj_1")
            await make_org(gateway, "org_2", "proj_2")
            shared = await publisher.bring(gateway)
            admin = await gateway.authenticate(await make_key(gateway, "org_2"))
            foreign = await publisher.bring(gateway, caller=admin, package="acme/q")
            async with visitor_of(gateway, await make_key(gateway, "org_1", "operator")) as visitor:
                page = await visitor.get("/packages")
                assert shared.id in page.text and foreign.id not in page.text and "Add a package" not in page.text
                assert (await visitor.get(f"/packages/{foreign.id}")).status_code == 404
                assert "Delete" not in (await visitor.get(f"/packages/{shared.id}")).text
                assert (await upload(visitor, packed.path.read_bytes(), publisher.sign(packed)))[0] == 403
                assert (await visitor.post("/packages:pull", {"source": "x"})).status_code == 403
                assert (await visitor.post(f"/packages/{shared.id}:delete", {"confirm": "yes"})).status_code == 403
            async with visitor_of(gateway, await make_key(gateway, "org_1", "admin")) as visitor:
                assert (await visitor.post(f"/packages/{shared.id}:delete", {"confirm": "yes"})).status_code == 403
                status, path = await upload(visitor, packed.path.read_bytes(), publisher.sign(packed))
                assert status == 303 and "for org_1" in text_of(await visitor.get(path))

    run(main)
