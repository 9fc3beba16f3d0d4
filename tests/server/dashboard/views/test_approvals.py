"""Definitions that wait for an approval."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plugbay.server.dashboard.views import approvals
from plugbay.server.domain.principal import OPERATOR
from plugbay.store.pages import Page
from tests.support.dashboards import hosting_at, text_of, visitor_of
from tests.support.loops import Run
from tests.support.mcp_servers import write_server
from tests.support.plugins import write_plugin

HIDDEN = "TOOLS[0]['description'] = 'Says \\u200b it again.'"


MORE = "TOOLS.append({'name': 'more', 'inputSchema': {'type': 'object'}})"


def prepared(folder: Path, body: str = "") -> None:
    (folder / "plugbay.toml").write_text(f'[host]\nstate_dir = "{folder}/state"\n')
    write_server(folder / "plugins", "srv", body)


def digest_in(page: str) -> str:
    found = re.search(r'name="digest" value="(sha256:[0-9a-f]{64})"', page)
    assert found is not None
    return found[1]


def test_a_server_is_seen_approved_and_runs(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    prepared(tmp_path, HIDDEN)

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            before = await visitor.get("/plugins/srv")
            assert "until you approve them" in text_of(before) and 'name="digest"' not in before.text
            assert (await visitor.post("/plugins/srv:look")).status_code == 303
            seen = await visitor.get("/plugins/srv")
            assert "Says \\u200b it again." in text_of(seen), "what is hidden is to be seen"
            done = await visitor.post("/plugins/srv:approve", {"digest": digest_in(seen.text)})
            assert done.status_code == 303
            after = await visitor.get("/plugins/srv")
            assert "Not approved" not in text_of(after)
            assert (await gateway.host.attempt("srv/echo", {})).failure is None
            entries = (await gateway.audit.page(OPERATOR, Page())).items
            assert [entry.action for entry in entries][:2] == ["plugin.approve", "plugin.look"]
            assert entries[0].details["digest"] == digest_in(seen.text)

    run(main)


def test_only_the_last_shown_definitions_can_be_approved(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    prepared(tmp_path)

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            for digest in ("", f"sha256:{'0' * 64}"):
                refused = await visitor.post("/plugins/srv:approve", {"digest": digest})
                assert refused.status_code == 409 and "look again" in text_of(refused)
            await visitor.post("/plugins/srv:look")
            old = digest_in((await visitor.get("/plugins/srv")).text)
            write_server(tmp_path / "plugins", "srv", MORE)
            await visitor.post("/plugins/srv:look")
            assert (await visitor.post("/plugins/srv:approve", {"digest": old})).status_code == 409
            assert gateway.operator_plugins.plugin("srv")["refused"] is not None
            fresh = digest_in((await visitor.get("/plugins/srv")).text)
            assert (await visitor.post("/plugins/srv:approve", {"digest": fresh})).status_code == 303
            write_server(tmp_path / "plugins", "srv", "TOOLS[0]['description'] = 'Now something else.'")
            await visitor.post("/plugins/srv:restart")
            changed = text_of(await visitor.get("/plugins/srv"))
            assert "Exports without approval: echo" in changed
            await visitor.post("/plugins/srv:look")
            assert "echo tool changed" in text_of(await visitor.get("/plugins/srv"))

    run(main)


@pytest.mark.parametrize("limit", ["MAX_DEFINITIONS", "MAX_CHARACTERS", "MAX_DEFINITION"])
def test_what_is_too_much_for_a_page_is_not_approved_on_one(
    limit: str, sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(tmp_path, MORE)
    monkeypatch.setattr(approvals, limit, 1)

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await visitor.post("/plugins/srv:look")
            page = await visitor.get("/plugins/srv")
            assert "plugbay mcp approve srv" in text_of(page) and 'name="digest"' not in page.text

    run(main)


def test_a_plugin_whose_manifest_tells_needs_no_approval(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            refused = await visitor.post("/plugins/p:look")
            assert refused.status_code == 422 and "they need no approval" in text_of(refused)

    run(main)
