"""The registry names every contract once, and no manifest file belongs to two."""

from __future__ import annotations

import json
from pathlib import Path

from plugbay import __version__
from plugbay.contracts.base import Role
from plugbay.contracts.registry import CONTRACTS, HostSide, contract_of
from plugbay.model.errors import Problem
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
        assert isinstance(machine, contract.machine)
        assert machine.role == Role.HOST
        machine.greet()
        assert machine.outgoing()


def test_a_contract_is_recognised_by_its_manifest_file() -> None:
    assert contract_of("rterm-plugin.json") is CONTRACTS["rune"]
    assert contract_of("manifest.toml") is CONTRACTS["ainb"]
    assert contract_of("vai-plugin.toml") is CONTRACTS["vai"]
    assert contract_of(".mcp.json") is contract_of("manifest.json") is CONTRACTS["mcp"]
    assert contract_of("package.json") is None


def test_an_ainb_plugin_is_told_where_its_manifest_is_what_it_may_do_and_whose_child_it_is() -> None:
    spec = PluginSpec("p", "1.0.0", "ainb", Path("/plugins/p"), ("/plugins/p/p",))
    side = HostSide(("event_bus", "network=a"), config={"days": 7}, pid=42)
    machine = CONTRACTS["ainb"].host_machine(spec, side, MsgspecCodec())
    machine.greet()
    params = json.loads(machine.outgoing().partition(b"\r\n\r\n")[2])["params"]
    assert params["manifest_path"] == "/plugins/p/manifest.toml"
    assert params["granted_capabilities"] == ["event_bus", "network"]
    assert params["config"] == {"days": 7}
    assert params["host"]["pid"] == 42


def test_a_vai_plugin_is_told_which_host_greets_it() -> None:
    spec = PluginSpec("acme/devkit", "1.0.0", "vai", Path("/plugins/p"), ("./p",))
    machine = CONTRACTS["vai"].host_machine(spec, HostSide(), MsgspecCodec())
    machine.greet()
    hello = json.loads(machine.outgoing().partition(b"\r\n\r\n")[2])
    assert (hello["type"], hello["role"], hello["host"]) == (
        "hello",
        "host",
        {"name": "plugbay", "version": __version__},
    )


def test_an_mcp_server_is_told_who_greets_it_and_what_was_granted_of_what_it_may_ask_for() -> None:
    spec = PluginSpec("p", "0", "mcp", Path("/p"), ("p",), optional_capabilities=("sampling", "roots"))
    machine = CONTRACTS["mcp"].host_machine(spec, HostSide(("roots", "elicitation")), MsgspecCodec())
    machine.greet()
    hello = json.loads(machine.outgoing())
    assert (hello["method"], hello["params"]["protocolVersion"]) == ("initialize", "2025-11-25")
    assert hello["params"]["clientInfo"] == {"name": "plugbay", "version": __version__}
    assert hello["params"]["capabilities"] == {"roots": {}}


def test_an_mcp_server_is_greeted_in_the_era_it_is_known_to_speak() -> None:
    spec = PluginSpec("p", "0", "mcp", Path("/p"), ("p",))
    machine = CONTRACTS["mcp"].host_machine(spec, HostSide(era="modern"), MsgspecCodec())
    machine.greet()
    assert json.loads(machine.outgoing())["method"] == "server/discover"


def test_only_a_contract_whose_manifest_names_files_is_given_them() -> None:
    class Nowhere:
        platform = ("linux", "amd64")

        def read(self, path: str, limit: int) -> bytes | Problem:
            raise AssertionError(path)

        program_problem = read

    for name in ("rune", "nexo", "kaged", "ainb", "mcp"):
        assert CONTRACTS[name].parse_manifest("", Path("/p"), {}, Nowhere())[0] is None  # type: ignore[arg-type]
