"""What an operator set: to be read, and not to be printed by accident."""

from __future__ import annotations

import traceback

import pytest

from plugbay.sdk.settings import Config, Secrets, Settings
from tests.support.requirements import requirement


def test_configuration_is_read_by_name_and_never_written() -> None:
    config = Config({"depth": 3, "name": "x"})
    assert (config["depth"], config.get("nope", 7), list(config), len(config)) == (3, 7, ["depth", "name"], 2)
    assert config == {"depth": 3, "name": "x"}
    assert repr(config) == "Config({'depth': 3, 'name': 'x'})"
    with pytest.raises(TypeError):
        config["depth"] = 4  # type: ignore[index]


def test_what_is_set_is_not_what_the_host_said_later_changes() -> None:
    said = {"depth": 3}
    config = Config(said)
    said["depth"] = 4
    assert config["depth"] == 3


@requirement("kaged:sdk-secrets")
@pytest.mark.parametrize("show", [repr, str, "{}".format, "{0!r:>3}".format, lambda secrets: f"%s {secrets}"])
def test_a_secret_is_masked_however_it_is_shown(show: type[str]) -> None:
    secrets = Secrets({"token": "hunter2", "key": {"inner": "hunter2"}})
    for thing in (secrets, secrets.items(), secrets.values(), [secrets]):
        text = show(thing)
        assert ("hunter2" in text, "***" in text, "token" in text) == (False, True, True)
    assert secrets["token"] == "hunter2"


@requirement("kaged:sdk-secrets")
def test_an_error_that_quotes_the_secrets_quotes_the_mask() -> None:
    secrets = Secrets({"token": "hunter2"})
    try:
        raise RuntimeError("cannot log in", secrets)
    except RuntimeError as error:
        assert "hunter2" not in "".join(traceback.format_exception(error))


def test_settings_are_empty_until_they_are_said() -> None:
    settings = Settings()
    assert (dict(settings.config), dict(settings.secrets)) == ({}, {})
    settings.take({"a": 1}, {"b": 2})
    assert (settings.config["a"], settings.secrets["b"]) == (1, 2)
