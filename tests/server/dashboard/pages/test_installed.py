"""Pages of installed plugins: a look with a diff of permissions, the consent, rollback, pin, removal, and refusals."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from plugbay.packages import keys
from plugbay.server.domain.principal import OPERATOR
from plugbay.server.domain.settings import GatewaySettings
from tests.packages.builders import PLUGIN, Bench, key, pack, sign
from tests.server.dashboard.pages.test_orgs import actions
from tests.support.dashboards import ORIGIN, Visitor, text_of, visitor_of
from tests.support.gateways import gateway_at, make_key, make_org
from tests.support.installing import install, signature_of, store_served
from tests.support.loops import Run

PATH = f"/installed/{PLUGIN}"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def upload(visitor: Visitor, package: Path) -> tuple[int, str]:
    """Upload as the page does; returns the status, and the text or where it leads."""
    files = {"archive": ("../../x.tar.gz", package.read_bytes()), "signature": ("s", signature_of(package) or b"")}
    answer = await visitor.client.post(
        "/installed", data={"form_key": visitor.form_key}, files=files, headers={"origin": ORIGIN}
    )
    return answer.status_code, answer.headers.get("location") or text_of(answer)


def hidden(page: str) -> dict[str, str]:
    """The values that the consent sends."""
    return {name: re.findall(rf'name="{name}" value="([^"]*)"', page)[0] for name in ("digest", "before")}


async def consent(visitor: Visitor, path: str) -> str:
    """Install what a page shows; returns the text of the page after it."""
    shown = await visitor.get(path)
    done = await visitor.post(path, hidden(shown.text))
    assert done.status_code == 303, text_of(done)
    return text_of(await visitor.get(done.headers["location"]))


def test_a_plugin_is_installed_after_its_signature_and_permissions_were_shown(
    sqlite_url: str, bench: Bench, run: Run
) -> None:
    package = bench.release("1.0.0", capabilities=["mail.send"])

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway, visitor_of(gateway) as visitor:
            empty = await visitor.get("/installed")
            assert "No installed plugins" in text_of(empty) and f"--store {bench.store.root}" in empty.text
            assert f"--trust {bench.root / 'trust.json'}" in empty.text, "the same keys as the browser"
            status, path = await upload(visitor, package)
            assert status == 303 and path.startswith("/installing/")
            look = await visitor.get(path)
            words = text_of(look)
            assert "signed by acme" in words and keys.key_id(keys.public_of(bench.key)) in words
            assert "mail.send" in words and "tool t" in words and "nothing is installed yet" in words
            assert hidden(look.text)["digest"] in words and "Install 1.0.0, sha256:" in words
            assert bench.store.installed() == []
            words = await consent(visitor, path)
            assert f"{PLUGIN} 1.0.0 is installed. Nothing was granted. It asks for mail.send." in words
            page = await visitor.get("/installed?search=NOTES")
            assert f"{PLUGIN} rune 1.0.0" in text_of(page) and "acme" in text_of(page)
            assert "Nothing found" in text_of(await visitor.get("/installed?search=other"))
            assert f'href="{PATH}"' in (await visitor.get(f"/plugins/{PLUGIN}")).text, "its own page leads here"
            assert f'href="/plugins/{PLUGIN}"' in (await visitor.get(PATH)).text, "and back"
            _, again = await upload(visitor, package)
            assert "Exactly this package is installed" in text_of(await visitor.get(again))
            assert "is installed already" in await consent(visitor, again)

    run(main)


def test_an_upgrade_and_a_rollback_show_the_difference_before_they_are_done(
    sqlite_url: str, bench: Bench, run: Run
) -> None:
    one = bench.release("1.0.0", capabilities=["mail.send"])
    two = bench.release("2.0.0", capabilities=["mail.send", "disk.read"], description="<script>x</script>")

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway, visitor_of(gateway) as visitor:
            await install(gateway, one)
            _, path = await upload(visitor, two)
            look = await visitor.get(path)
            assert "1.0.0 → 2.0.0" in text_of(look) and "<ins>disk.read</ins>" in look.text
            assert "<script>x" not in look.text and "&lt;script&gt;x" in look.text
            assert "asks for mail.send, disk.read" in (await consent(visitor, path))
            page = await visitor.get(PATH)
            (to,) = re.findall(r'name="to" value="([^"]*)"', page.text)
            assert re.search("2.0.0 current .* 1.0.0 previous", text_of(page))
            asked = text_of(await visitor.post(f"{PATH}:rollback", {"to": to}))
            assert f"Roll {PLUGIN} back to 1.0.0?" in asked and "no longer asks for disk.read" in asked and to in asked
            assert (await gateway.installed_plugins.get(OPERATOR, PLUGIN)).current.version == "2.0.0"
            done = await visitor.post(f"{PATH}:rollback", {"to": to, "confirm": "yes"})
            assert done.headers["location"] == PATH
            assert f"{PLUGIN} 1.0.0 is current again." in text_of(await visitor.get(PATH))

    run(main)


def test_a_pin_refuses_an_upgrade_and_a_removal_is_confirmed(sqlite_url: str, bench: Bench, run: Run) -> None:
    one, two = bench.release("1.0.0"), bench.release("2.0.0")

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway, visitor_of(gateway) as visitor:
            await install(gateway, one)
            assert (await visitor.post(f"{PATH}:pin")).status_code == 303
            page = await visitor.get(PATH)
            assert "is pinned to 1.0.0" in text_of(page) and ":rollback" not in page.text
            _, path = await upload(visitor, two)
            look = await visitor.get(path)
            assert "Not installed" in text_of(look) and "Unpin it" in text_of(look) and 'name="digest"' not in look.text
            assert (await visitor.post(path, {"digest": "x", "before": ""})).status_code == 409
            assert (await visitor.post(f"{PATH}:unpin")).status_code == 303
            assert "2.0.0 is installed." in await consent(visitor, path), "the page that was refused works now"

            asked = text_of(await visitor.post(f"{PATH}:uninstall"))
            assert f"Uninstall {PLUGIN}?" in asked and "older than 2.0.0 stay refused" in asked
            assert (await visitor.post(f"{PATH}:uninstall", {"confirm": "yes"})).headers["location"] == "/installed"
            assert "is uninstalled" in text_of(await visitor.get("/installed"))
            assert (await visitor.get(PATH)).status_code == (await visitor.get(path)).status_code == 404
            assert (await visitor.post(f"{PATH}:other")).status_code == 404
            kept = [name for name in await actions(gateway) if name != "plugin.reload"]
            assert kept == [f"plugin.{name}" for name in "install pin unpin upgrade uninstall".split()]

    run(main)


def test_an_untrusted_package_leads_to_the_publishers_and_can_be_discarded(
    sqlite_url: str, bench: Bench, tmp_path: Path, run: Run
) -> None:
    unknown, unsigned = sign(pack(tmp_path / "unknown"), key()), pack(tmp_path / "unsigned")

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway, visitor_of(gateway) as visitor:
            _, path = await upload(visitor, unknown)
            look = await visitor.get(path)
            assert "which is not trusted" in text_of(look) and 'href="/publishers"' in look.text
            _, other = await upload(visitor, unsigned)
            assert "--allow-unsigned" in text_of(await visitor.get(other))
            done = await visitor.post(f"{path}:discard")
            assert done.headers["location"] == "/installed"
            assert "Nothing was installed" in text_of(await visitor.get("/installed"))
            assert (await visitor.get(path)).status_code == 404 and bench.store.installed() == []

    run(main)


def test_a_change_by_the_command_line_is_shown_before_the_consent_is_asked_again(
    sqlite_url: str, bench: Bench, run: Run
) -> None:
    one, two, three = (bench.release(f"{number}.0.0") for number in (1, 2, 3))

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway, visitor_of(gateway) as visitor:
            await install(gateway, one)
            _, path = await upload(visitor, three)
            shown = hidden((await visitor.get(path)).text)
            await asyncio.to_thread(bench.install, two)
            stale = text_of(await visitor.get(PATH))
            assert "The server still has the release 1.0.0" in stale and "Reload" in stale
            refused = await visitor.post(path, shown)
            assert refused.status_code == 409 and "2.0.0 → 3.0.0" in text_of(refused)
            assert "changed since the page showed it" in text_of(refused)
            done = await visitor.post(path, hidden(refused.text))
            assert done.status_code == 303
            assert (await visitor.post(f"{PATH}:rollback", {"to": shown["before"]})).status_code == 409
            assert (await visitor.post(f"{PATH}:rollback", {"to": "", "confirm": "yes"})).status_code == 409

    run(main)


def test_forms_that_cannot_be_used_are_shown_again_with_the_reason(sqlite_url: str, bench: Bench, run: Run) -> None:
    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway, visitor_of(gateway) as visitor:
            broken = bench.root / "broken"
            broken.write_bytes(b"no archive")
            status, words = await upload(visitor, broken)
            assert status == 422 and "Installed plugins" in words
            broken.write_bytes(b"")
            status, words = await upload(visitor, broken)
            assert status == 400 and "Choose the file of a package." in words
            for source in ("", "http://x", "oci://localhost:1/acme/p:1"):
                refused = await visitor.post("/installed:pull", {"source": source})
                assert refused.status_code in (400, 422, 503) and f'value="{source}"' in refused.text
            for name in ("%00", "..%2F..%2Fetc", "x" * 5000, "%F0%9F%8D%B5", "a/b"):
                assert (await visitor.get(f"/installed/{name}")).status_code == 404, name
                assert (await visitor.post(f"/installed/{name}:pin")).status_code == 404, name
            assert (await visitor.get("/installing/look_x")).status_code == 404
            assert (await visitor.post("/installing/look_x", {"digest": "x"})).status_code == 404

    run(main)


@pytest.mark.parametrize("folders", [(), ("plain",)], ids=["no folders", "a plain folder"])
def test_a_server_without_a_store_says_how_to_get_one(
    sqlite_url: str, tmp_path: Path, run: Run, folders: tuple[str, ...]
) -> None:
    settings = GatewaySettings(tmp_path, folders=tuple(tmp_path / name for name in folders))

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, settings=settings) as gateway, visitor_of(gateway) as visitor:
            page = await visitor.get("/installed")
            assert page.status_code == 200 and "serves no store" in text_of(page) and "plugbay serve" in page.text
            assert all(str(tmp_path / name) in page.text for name in folders)
            assert "archive" not in page.text
            assert (await visitor.post(f"{PATH}:pin")).status_code == 409

    run(main)


def test_a_key_of_an_org_sees_nothing_of_them(sqlite_url: str, bench: Bench, run: Run) -> None:
    one = bench.release("1.0.0")

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway:
            await make_org(gateway)
            await install(gateway, one)
            async with visitor_of(gateway, await make_key(gateway, "org_1")) as visitor:
                assert 'href="/installed"' not in (await visitor.get("/install")).text
                for path in ("/installed", PATH, "/installing/look_x"):
                    assert (await visitor.get(path)).status_code == 403
                assert (await upload(visitor, one))[0] == 403
                for path in (
                    "/installed:pull",
                    "/installing/look_x",
                    "/installing/look_x:discard",
                    *(f"{PATH}:{operation}" for operation in ("rollback", "pin", "unpin", "uninstall")),
                ):
                    assert (await visitor.post(path, {"confirm": "yes"})).status_code == 403, path
            async with visitor_of(gateway) as visitor:
                assert 'href="/installed"' in (await visitor.get("/install")).text, "the control"
            assert bench.store.find(PLUGIN) is not None

    run(main)
