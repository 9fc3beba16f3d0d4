"""Permissions are requests: checked word by word, and named for whoever grants them."""

from __future__ import annotations

import pytest

from plugbay.contracts.vai.permissions import SCOPES, access, capabilities
from plugbay.contracts.vai.sections import Permissions
from plugbay.model.spec import Access
from tests.contracts.vai.manifests import export, good, manifest, permissions, problems, reported
from tests.support.requirements import requirement

AT = "exports[0].permissions"


@requirement("vai:manifest-permissions")
def test_an_export_that_says_nothing_asks_for_nothing() -> None:
    spec = good(manifest())
    assert (spec.capabilities, spec.access, spec.exports[0].capabilities) == ((), (), ())
    assert spec.exports[0].facts["permissions"] == {
        "network": "none",
        "filesystem": "none",
        "gateway_api_scopes": [],
        "secret_slots": [],
    }


@requirement("vai:manifest-permissions")
def test_what_is_asked_for_has_a_word_that_can_be_granted() -> None:
    asked = Permissions(
        network="egress", filesystem="assets_ro", gateway_api_scopes=["chains:read"], secret_slots=["jira_token"]
    )
    words = ("network", "filesystem=assets_ro", "scope=chains:read", "secret=jira_token")
    assert capabilities(asked) == words
    assert access(words) == (Access("network", capability="network"),)
    assert access(words[1:]) == ()
    assert access(("filesystem=scratch",)) == (Access("scratch", capability="filesystem=scratch"),)


def test_the_words_of_a_package_are_those_of_its_exports_each_once() -> None:
    spec = good(
        manifest(
            export("tool", '[exports.permissions]\nnetwork = "egress"\nsecret_slots = ["a"]', id="one"),
            export("tool", '[exports.permissions]\nnetwork = "egress"\nsecret_slots = ["b"]', id="two"),
        )
    )
    assert spec.capabilities == ("network", "secret=a", "secret=b")
    assert [each.capabilities for each in spec.exports] == [("network", "secret=a"), ("network", "secret=b")]


@requirement("vai:manifest-permissions")
@pytest.mark.parametrize(("key", "allowed"), [("network", "none, egress"), ("filesystem", "none, scratch, assets_ro")])
def test_a_word_the_contract_does_not_have_is_refused_with_those_it_has(key: str, allowed: str) -> None:
    (found,) = reported(permissions(f'{key} = "all"'))
    assert (found.code, found.path) == ("invalid_enum", f"{AT}.{key}")
    assert f"one of {allowed}, got 'all'" in found.message


@requirement("vai:manifest-scopes")
@pytest.mark.parametrize("scope", SCOPES)
def test_every_scope_of_a_gateway_can_be_asked_for(scope: str) -> None:
    good(permissions(f'network = "egress"\ngateway_api_scopes = ["{scope}"]'))


@requirement("vai:manifest-scopes")
@pytest.mark.parametrize(
    "scope", ["chains", "chains:", ":read", "Chains:read", "chains:read:all", "chains:*", "tools:read", ""]
)
def test_a_scope_no_gateway_has_is_refused(scope: str) -> None:
    text = permissions(f'network = "egress"\ngateway_api_scopes = ["runs:read", "{scope}"]')
    assert problems(text) == [("error", "invalid_scope", f"{AT}.gateway_api_scopes[1]")]


@requirement("vai:manifest-secret-slots")
@pytest.mark.parametrize("slot", ["", "Token", "1a", "a-b", "a b", "ä", "a" * 65])
def test_a_slot_whose_name_is_none_is_refused(slot: str) -> None:
    assert problems(permissions(f'secret_slots = ["ok", "{slot}"]')) == [
        ("error", "invalid_secret_slot", f"{AT}.secret_slots[1]")
    ]


@pytest.mark.parametrize(
    ("lines", "code", "path"),
    [
        (
            'network = "egress"\ngateway_api_scopes = ["runs:read", "runs:read"]',
            "invalid_scope",
            "gateway_api_scopes[1]",
        ),
        ('secret_slots = ["a", "b", "a"]', "invalid_secret_slot", "secret_slots[2]"),
    ],
)
def test_what_is_asked_for_twice_is_refused(lines: str, code: str, path: str) -> None:
    assert problems(permissions(lines)) == [("error", code, f"{AT}.{path}")]


@requirement("vai:manifest-scopes")
@pytest.mark.parametrize("network", ["", 'network = "none"'])
def test_scopes_without_a_network_are_refused(network: str) -> None:
    text = permissions(f'{network}\ngateway_api_scopes = ["runs:read"]')
    assert problems(text) == [("error", "scopes_without_network", f"{AT}.gateway_api_scopes")]
