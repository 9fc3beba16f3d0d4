"""The registry names every contract once and recognises each by its manifest."""

from __future__ import annotations

from plugbay.contracts.registry import CONTRACTS, MACHINES, contract_of


def test_every_contract_has_a_machine_and_a_manifest_of_its_own() -> None:
    assert set(CONTRACTS) == set(MACHINES)
    files = [name for contract in CONTRACTS.values() for name in contract.manifest_files]
    assert len(files) == len(set(files))


def test_a_contract_is_recognised_by_its_manifest_file() -> None:
    found = contract_of("rterm-plugin.json")
    assert found is not None
    assert found.name == "rune"
    assert contract_of("package.json") is None
