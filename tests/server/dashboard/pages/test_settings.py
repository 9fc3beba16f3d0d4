"""Settings and secrets as forms: typed, validated at the field, reset; a secret is written and never shown."""

from __future__ import annotations

import json
from pathlib import Path

from plugbay.server.domain.principal import OPERATOR
from plugbay.store.pages import Page
from tests.cli.test_config import SETTINGS
from tests.support.dashboards import hosting_at, text_of, visitor_of
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run
from tests.support.plugins import write_plugin

SECRET = "open sesame"


def written(folder: Path) -> Path:
    write_kaged_plugin(folder / "plugins", "p", **SETTINGS)
    (folder / "plugbay.toml").write_text(f'[host]\nstate_dir = "{folder}/state"\n')
    return folder / "state"


def test_settings_are_changed_refused_at_their_field_and_reset(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    state = written(tmp_path)

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            page = await visitor.get("/settings?plugin=p")
            assert "How many limit" in text_of(page) and "(1 to 20, default 3)" in text_of(page)
            assert 'min="1" max="20"' in page.text and "Reset" not in text_of(page)
            assert "key: " not in text_of(page) and "key is required, and is not set" in text_of(page)
            form = {"field:limit": "7", "field:pace": '"fast"', "field:words": "a"}
            done = await visitor.post("/settings?plugin=p", form)
            assert (done.status_code, done.headers["location"]) == (303, "/settings?plugin=p")
            saved = json.loads((state / "config/p.json").read_text())
            assert saved == {"limit": 7, "mode": "fast", "words": ["a"]}
            again = await visitor.get("/settings?plugin=p")
            assert "The settings were saved. It takes effect when the plugin is reloaded." in text_of(again)
            assert 'value="7"' in again.text and again.text.count('name="reset"') == 3
            for name, text, problem in (
                ("limit", "12", "must be at most 9"),  # the schema allows less than the knob
                ("limit", "x", "enter a whole number"),
                ("limit", "21", "limit must be at most 20"),
            ):
                refused = await visitor.post("/settings?plugin=p", form | {f"field:{name}": text})
                assert refused.status_code == 400, (name, text)
                shown = text_of(refused)
                assert 'class="field wrong"' in refused.text and (problem in shown or "12" in shown), (name, shown)
            assert json.loads((state / "config/p.json").read_text()) == saved, "nothing of it was saved"
            assert (await visitor.post("/settings?plugin=p", {"reset": "pace"})).status_code == 303
            assert json.loads((state / "config/p.json").read_text()) == {"limit": 7, "words": ["a"]}
            actions = [entry.action for entry in (await gateway.audit.page(OPERATOR, Page())).items]
            assert actions == ["plugin.configure", "plugin.configure"]

    run(main)


def test_a_secret_is_saved_removed_and_never_shown(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    state = written(tmp_path)

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            short = await visitor.post("/settings?plugin=p", {"secret": "key", "value": "ab"})
            assert (
                short.status_code == 422 and "key cannot be saved" in text_of(short) and 'value="ab"' not in short.text
            )
            for form in ({"secret": "key", "value": ""}, {"secret": "key", "value": "x" * 70_000}):
                assert (await visitor.post("/settings?plugin=p", form)).status_code == 400
            unknown = await visitor.post("/settings?plugin=p", {"secret": "kay", "value": SECRET})
            assert unknown.status_code == 422 and SECRET not in unknown.text
            done = await visitor.post("/settings?plugin=p", {"secret": "key", "value": SECRET})
            assert done.status_code == 303
            file = state / "secrets/p.json"
            assert json.loads(file.read_text()) == {"key": SECRET} and file.stat().st_mode & 0o077 == 0
            page = await visitor.get("/settings?plugin=p")
            assert "key is set" in text_of(page) and SECRET not in page.text and "does not start" not in text_of(page)
            entry = (await gateway.audit.page(OPERATOR, Page())).items[0]
            assert entry.action == "plugin.secret" and SECRET not in str(entry)
            reloaded = await visitor.post(
                "/settings?plugin=p", {"field:limit": "4", "field:pace": '"slow"', "reload": "yes"}
            )
            assert reloaded.status_code == 303
            assert "p was reloaded." in text_of(await visitor.get("/settings?plugin=p"))
            await visitor.post("/settings?plugin=p", {"secret": "key", "remove": "yes"})
            assert json.loads(file.read_text()) == {}

    run(main)


def test_a_plugin_without_settings_says_so(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "q")

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            shown = text_of(await visitor.get("/settings?plugin=q"))
            assert "this server has no state folder to save settings in" in shown, "this host saves nothing"
            assert (await visitor.post("/settings?plugin=q", {"secret": "x", "value": "y"})).status_code == 409
            for path in ("/settings?plugin=nobody", "/settings"):
                assert (await visitor.get(path)).status_code == 404

    run(main)
