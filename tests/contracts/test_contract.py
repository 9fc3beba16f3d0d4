"""Each contract is one value, which hosts and tools use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from plugbay import __version__
from plugbay.contracts.base import Role
from plugbay.contracts.contract import HOST_VERSION, HostSide
from plugbay.contracts.registry import CONTRACTS
from plugbay.model.errors import Problem
from plugbay.model.spec import PluginSpec
from plugbay.wire.fast_json import MsgspecCodec


def test_greetings_name_the_version_of_plugbay() -> None:
    assert __version__ == HOST_VERSION


def test_the_value_and_the_machine_of_a_contract_agree_on_its_name() -> None:
    for name, contract in CONTRACTS.items():
        assert name == contract.machine().CONTRACT
        assert contract.title and contract.version


def test_a_host_machine_is_made_from_a_spec_and_its_grants() -> None:
    for contract in CONTRACTS.values():
        spec = PluginSpec("p", "1", contract.name, Path("/p"), ("run",))
        machine = contract.host_machine(spec, HostSide(("granted",), 7), MsgspecCodec())
        assert isinstance(machine, contract.machine())
        assert machine.role == Role.HOST
        machine.greet()
        assert machine.outgoing()


def test_the_machine_of_a_contract_is_loaded_for_its_first_plugin() -> None:
    """A command that runs one plugin, or none, pays for no other contract."""
    code = (
        "import sys; from plugbay.contracts.registry import CONTRACTS;"
        " print([name for name in CONTRACTS if f'plugbay.contracts.{name}.machine' in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert loaded.stdout == "[]\n"


def test_only_a_contract_whose_manifest_names_files_is_given_them() -> None:
    class Nowhere:
        platform = ("linux", "amd64")

        def read(self, path: str, limit: int) -> bytes | Problem:
            raise AssertionError(path)

        program_problem = read

    for name in ("rune", "nexo", "kaged", "ainb", "mcp"):
        assert CONTRACTS[name].parse_manifest("", Path("/p"), {}, Nowhere())[0] is None  # type: ignore[arg-type]
