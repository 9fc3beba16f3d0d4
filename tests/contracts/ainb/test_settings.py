"""`[[config]]` entries become knobs and the schema of the plugin's config."""

from __future__ import annotations

import pytest

from plugbay.contracts.schemas import compile_schema
from plugbay.host.config.settings import check_config, defaults
from plugbay.model.spec import Knob, SettingsSpec
from tests.contracts.ainb.manifests import good, manifest, problems, reported, setting
from tests.support.requirements import requirement

FIVE = """
[[config]]
key = "notes_dir"
kind = "path"
label = "Where notes are"
default = "~/notes"
[[config]]
key = "title"
kind = "string"
label = "Title"
[[config]]
key = "loud"
kind = "bool"
label = "Loud"
default = "true"
[[config]]
key = "mode"
kind = "enum"
label = "Mode"
default = "fast"
choices = ["fast", "safe"]
[[config]]
key = "days"
kind = "int"
label = "Days"
default = "-7"
"""


@requirement("ainb:manifest-config")
def test_each_kind_is_a_type_of_knob() -> None:
    assert good(manifest(FIVE)).settings.knobs == (
        Knob("notes_dir", "path", "Where notes are", "notes_dir", default="~/notes"),
        Knob("title", "text", "Title", "title", default=""),
        Knob("loud", "boolean", "Loud", "loud", default=True),
        Knob("mode", "enum", "Mode", "mode", default="fast", facts={"values": ["fast", "safe"]}),
        Knob("days", "int_range", "Days", "days", default=-7),
    )


@requirement("ainb:manifest-config")
def test_a_plugin_gets_its_defaults_as_what_their_kinds_say() -> None:
    spec = good(manifest(FIVE)).settings
    config = defaults(spec)
    assert config == {"notes_dir": "~/notes", "title": "", "loud": True, "mode": "fast", "days": -7}
    assert check_config(spec, config) == []
    validator = compile_schema(spec.config_schema)
    for wrong in ({"days": "7"}, {"loud": "true"}, {"mode": "slow"}, {"unknown": 1}):
        assert not validator.is_valid({**config, **wrong})


def test_without_settings_there_is_no_config_at_all() -> None:
    assert good(manifest()).settings == SettingsSpec()


@pytest.mark.parametrize("lines", ["kind = 'path'", "kind = 'bool'", "kind = 'int'", "kind = 'enum'\nchoices = ['a']"])
def test_a_setting_without_a_default_has_no_value_until_somebody_gives_it_one(lines: str) -> None:
    assert defaults(good(setting(lines)).settings) == {}


@requirement("ainb:manifest-config-defaults")
@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("kind = 'int'\ndefault = 'seven'", "whole number, got 'seven'"),
        ("kind = 'int'\ndefault = '1.5'", "whole number, got '1.5'"),
        ("kind = 'bool'\ndefault = 'yes'", "true or false, got 'yes'"),
        ("kind = 'enum'\nchoices = ['a']\ndefault = 'b'", "one of a, got 'b'"),
        ('kind = "string"\ndefault = "a\\nb"', "one line"),
    ],
)
def test_a_default_that_does_not_fit_its_kind_is_an_error(lines: str, words: str) -> None:
    (found,) = reported(setting(lines))
    assert (found.severity, found.code, found.path) == ("error", "setting_default", "config[0].default")
    assert words in found.message


@requirement("ainb:manifest-config")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (setting("kind = 'enum'"), ("error", "missing_field", "config[0].choices")),
        (setting("kind = 'int'\nchoices = ['1']"), ("warning", "choices_ignored", "config[0].choices")),
        (setting("kind = 'int'\nmin = 3"), ("warning", "unknown_key", "config[0].min")),
        (
            setting("kind = 'int'\n[[config]]\nkey = 'k'\nkind = 'bool'\nlabel = 'B'"),
            ("error", "duplicate_setting", "config[1].key"),
        ),
        (manifest("[[config]]\nkey = ' '\nkind = 'int'\nlabel = 'A'"), ("error", "invalid_name", "config[0].key")),
    ],
)
def test_a_setting_that_cannot_be_set_is_reported(body: str, expected: tuple[str, str, str]) -> None:
    assert problems(body) == [expected]
