"""The registry names every contract once, and no manifest file belongs to two."""

from __future__ import annotations

from plugbay.contracts.registry import CONTRACTS, contract_of


def test_every_contract_has_a_name_and_manifest_files_of_its_own() -> None:
    assert all(name == contract.name for name, contract in CONTRACTS.items())
    files = [name for contract in CONTRACTS.values() for name in contract.manifest_files]
    assert len(files) == len(set(files))


def test_a_contract_is_recognised_by_its_manifest_file() -> None:
    assert contract_of("rterm-plugin.json") is CONTRACTS["rune"]
    assert contract_of("manifest.toml") is CONTRACTS["ainb"]
    assert contract_of("vai-plugin.toml") is CONTRACTS["vai"]
    assert contract_of(".mcp.json") is contract_of("manifest.json") is CONTRACTS["mcp"]
    assert contract_of("package.json") is None
