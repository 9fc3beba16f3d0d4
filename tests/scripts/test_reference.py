"""The generated reference is complete: no command, route, name, setting or metric is missing."""

from __future__ import annotations

import importlib
import re

import pytest
from fastapi.routing import APIRoute

from plugbay.cli.commands import COMMANDS, GROUPS
from plugbay.cli.gateway.resources import RESOURCES
from plugbay.host.config.config import Config, PluginConfig
from plugbay.server.api.metrics import HELP
from plugbay.server.app import ROUTERS
from tests.docs.test_snippets import ROOT


def headings(page: str) -> list[str]:
    return re.findall(r"^#{2,6} (.*)$", (ROOT / "docs" / "reference" / page).read_text("utf-8"), re.MULTILINE)


def test_every_command_has_its_help_page() -> None:
    found = headings("commands.md")
    assert {f"plugbay {name}" for name in (*COMMANDS, *GROUPS, *RESOURCES)} <= {*found}
    assert "plugbay binding create" in found and "plugbay mcp serve" in found


def test_every_route_is_an_operation() -> None:
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    real = {
        f"{method} {route.path.replace(':path}', '}')}"
        for route in routes
        if route.include_in_schema
        for method in route.methods or ()
    }
    assert len(real) > 90 and real <= {*headings("rest.md")}


@pytest.mark.parametrize(("module", "page"), [("plugbay", "python-host.md"), ("plugbay.sdk", "python-sdk.md")])
def test_every_public_name_is_explained(module: str, page: str) -> None:
    assert {*importlib.import_module(module).__all__} - {"__version__"} <= {*headings(page)}
    text = (ROOT / "docs" / "reference" / page).read_text("utf-8")
    assert not re.search(r" at 0x[0-9a-f]+", text)


def test_every_section_and_setting_of_plugbay_toml_is_listed() -> None:
    found = {re.sub(r"`\[([a-z]+).*", r"\1", heading) for heading in headings("configuration.md")}
    assert found == {*Config.model_fields}
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text("utf-8")
    section = page.partition("## `[plugins.NAME]`")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == [*PluginConfig.model_fields]


def test_every_metric_is_listed_with_its_labels() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `plugbay_(\w+?)(?:_total)?` \| (.*)$", page, re.MULTILINE))
    assert {*HELP} <= {*rows} and "plugin_state" in rows
    assert rows["calls"].startswith("counter | `code`, `export`, `plugin`, `status` |")
