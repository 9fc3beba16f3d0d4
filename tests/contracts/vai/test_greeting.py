"""Who a plugin may claim to be, and what a host says about itself."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.vai import greeting
from plugbay.model.errors import Code, Failure, Origin
from tests.contracts.vai.talk import WHO
from tests.support.requirements import requirement


@requirement("vai:wire-identity")
def test_the_package_that_is_installed_is_welcome() -> None:
    assert greeting.judge({**WHO, "later": 1}, **WHO) == {**WHO, "warnings": []}


@requirement("vai:wire-identity")
@pytest.mark.parametrize(
    ("plugin", "code"),
    [
        ({**WHO, "package_id": "acme/other"}, "plugin.identity_mismatch"),
        ({**WHO, "package_id": "Acme/devkit"}, "plugin.identity_mismatch"),
        ({**WHO, "version": "0.1.1"}, "plugin.identity_mismatch"),
        ({**WHO, "version": "0.1.0 "}, "plugin.identity_mismatch"),
        ({**WHO, "version": 1}, "plugin.identity_mismatch"),
        ({"package_id": "acme/devkit"}, "plugin.identity_mismatch"),
        ({}, "plugin.identity_mismatch"),
        (None, "protocol.invalid_frame"),
        ("acme/devkit", "protocol.invalid_frame"),
        ([], "protocol.invalid_frame"),
    ],
)
def test_anybody_else_must_go(plugin: Any, code: str) -> None:
    failure = greeting.judge(plugin, **WHO)
    assert isinstance(failure, Failure)
    assert (failure.code, failure.origin, failure.detail["plugin_code"]) == (Code.HANDSHAKE_FAILED, Origin.PLUGIN, code)


def test_who_came_instead_is_named_at_a_bounded_length() -> None:
    failure = greeting.judge({"package_id": "x" * 100_000, "version": "9.9.9"}, **WHO)
    assert isinstance(failure, Failure)
    assert "9.9.9, but acme/devkit 0.1.0 is installed" in failure.message
    assert len(failure.message) < 400
    assert failure.detail["expected"] == WHO
    assert failure.detail["got"] == {"package_id": "x" * 200, "version": "9.9.9"}


@pytest.mark.parametrize(
    ("host", "hello"),
    [
        ({"name": "vai-runner", "version": "0.1.0"}, {"host_name": "vai-runner", "host_version": "0.1.0"}),
        ({"name": 5}, {"host_name": "", "host_version": ""}),
        (None, {"host_name": "", "host_version": ""}),
        ("x", {"host_name": "", "host_version": ""}),
    ],
)
def test_a_plugin_takes_what_a_host_says_about_itself(host: Any, hello: dict[str, str]) -> None:
    assert greeting.heard(host) == hello
