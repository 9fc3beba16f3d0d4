"""The registry names every contract once, and no manifest file belongs to two."""

from __future__ import annotations

from pathlib import Path

from plugbay.contracts.base import Role
from plugbay.contracts.registry import CONTRACTS, HostSide, contract_of
from plugbay.model.spec import PluginSpec
from plugbay.wire.fast_json import MsgspecCodec


def test_every_contract_has_a_name_and_manifest_files_of_its_own() -> None:
    assert all(name == contract.name for name, contract in CONTRACTS.items())
    files = [name for contract in CONTRACTS.values() for name in contract.manifest_files]
    assert len(files) == len(set(files))


def test_a_host_machine_is_made_from_a_spec_and_its_grants() -> None:
    for contract in CONTRACTS.values():
        spec = PluginSpec("p", "1", contract.name, Path("/p"), ("run",))
        machine = contract.host_machine(spec, HostSide(("granted",), 7), MsgspecCodec())
        assert type(machine) is contract.machine
        assert machine.role == Role.HOST
        machine.greet()
        assert machine.outgoing()


def test_a_contract_is_recognised_by_its_manifest_file() -> None:
    assert contract_of("rterm-plugin.json") is CONTRACTS["rune"]
    assert contract_of("package.json") is None
