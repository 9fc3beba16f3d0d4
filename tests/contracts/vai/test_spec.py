"""The facts that every plugin of vai shares."""

from __future__ import annotations

from plugbay.contracts.vai.spec import FILE_NAME, MODES


def test_the_manifest_and_the_modes_are_those_of_the_contract() -> None:
    assert FILE_NAME == "vai-plugin.toml"
    assert MODES == ("composite",)
