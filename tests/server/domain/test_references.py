"""`secret://scope/name`, and nothing else."""

from __future__ import annotations

import pytest

from plugbay.server.domain.references import SecretRef, parse


def test_a_reference_names_whose_secret_it_is_and_what_it_is_called() -> None:
    assert parse("secret://org_123/jira_token") == SecretRef("org_123", "jira_token")
    assert str(SecretRef("proj_1", "key")) == "secret://proj_1/key"


@pytest.mark.parametrize(
    "text",
    [
        "sk-live-0123456789",
        "secret://org_1",
        "secret://org_1/",
        "secret:///key",
        "secret://org_1/a/b",
        "secret://org_1/../key",
        "Secret://org_1/key",
        "secret://org_1/key\n",
        7,
        None,
    ],
)
def test_anything_else_is_none(text: object) -> None:
    assert parse(text) is None
