"""A plugin's name and manifest under nexo."""

from __future__ import annotations

import pytest

from plugbay.sdk.contracts.nexo_manifest import declared_tools, default_manifest, nexo_id, offered_name, parse
from tests.support.requirements import requirement


@pytest.mark.parametrize(
    ("id", "mapped"), [("slack", "slack"), ("example.weather", "example_weather"), ("My-Plugin 2", "my_plugin_2")]
)
def test_an_id_is_mapped_to_the_alphabet(id: str, mapped: str) -> None:
    assert nexo_id(id) == mapped


@requirement("nexo:sdk-tool-namespace")
@pytest.mark.parametrize(
    ("tool", "offered"),
    [
        ("forecast", "p_forecast"),
        ("p_forecast", "p_forecast"),
        ("ext_p_forecast", "ext_p_forecast"),
        ("ext_q_forecast", "p_ext_q_forecast"),
        ("get.it", "p_get_it"),
    ],
)
def test_a_tool_is_offered_with_the_plugins_prefix(tool: str, offered: str) -> None:
    assert offered_name("p", tool) == offered


def test_a_manifest_is_echoed_as_it_is_written() -> None:
    manifest = parse('[plugin]\nid = "p"\nversion = "1.0.0"\n[plugin.extends]\ntools = ["p_a"]\n[plugin.new]\nx = 1\n')
    assert manifest["plugin"]["new"] == {"x": 1}
    assert declared_tools(manifest) == ["p_a"]
    assert declared_tools(default_manifest("p", "1", "", "")) == []


def test_a_plugin_without_one_says_who_it_is() -> None:
    table = {"id": "a_b", "version": "1", "name": "a.b", "description": "d"}
    assert default_manifest("a.b", "1", "", "d") == {"plugin": table}
    assert default_manifest("a.b", "1", "N", "d")["plugin"]["name"] == "N"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "id"),
        ("plugin = 3", "id"),
        ('[plugin]\nversion = "1"', "id"),
        ('[plugin]\nid = "1p"\nversion = "1"', "id"),
        ('[plugin]\nid = "p\\n"\nversion = "1"', "id"),
        ('[plugin]\nid = "p"', "version"),
        ('[plugin]\nid = "p"\nversion = " "', "version"),
    ],
)
def test_a_manifest_that_does_not_say_who_is_refused(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=rf"plugin\.{what}"):
        parse(text)
