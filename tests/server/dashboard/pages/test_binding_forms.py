"""The form of a binding: references instead of secrets, and JSON for config that no form can send."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

from tests.server.dashboard.pages.test_bindings import hidden, settings, stocked
from tests.support.dashboards import text_of, visitor_of
from tests.support.loops import Run
from tests.support.packaged import bind


def test_a_pasted_secret_is_refused_and_not_shown_again(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with stocked(sqlite_url, tmp_path) as (gateway, package), visitor_of(gateway) as visitor:
            path = f"/bindings/new?package={package.id}&export=s"
            pasted = await visitor.post(path, settings(org="org_1", **{"secret:key": "hunter2"}))
            assert "binding.raw_secret" in pasted.text and "hunter2" not in pasted.text
            reference = await visitor.post(path, settings(org="org_1", **{"secret:key": "secret://org_1/key"}))
            assert "binding.secret_not_found" in reference.text and 'value="secret://org_1/key"' in reference.text

    run(main)


def test_config_that_a_form_cannot_send_is_edited_as_json(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with stocked(sqlite_url, tmp_path) as (gateway, package), visitor_of(gateway) as visitor:
            city = "a\r\n</textarea><script>x</script>\u200b\u202e"
            row = await bind(gateway, package, config={"city": city})
            path = f"/bindings/{row.id}"
            page = await visitor.get(path)
            assert 'name="config_json"' in page.text and "<script>x" not in page.text
            text = unescape(
                page.text.partition('name="config_json"')[2].partition(">\n")[2].partition("</textarea>")[0]
            )
            assert json.loads(text) == {"city": city}, "invisible characters stay"
            base = hidden(page, f"{path}:check")["base"]
            same = settings(part="settings", package_version="1.0.0", base=base, config_json=text)
            assert "Nothing would change." in text_of(await visitor.post(f"{path}:check", same))

    run(main)
