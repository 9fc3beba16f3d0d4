"""The registry names every contract once, no manifest file belongs to two, and models load with a manifest."""

from __future__ import annotations

import subprocess
import sys

from plugbay.contracts.registry import CONTRACTS, contract_of
from tests.support.patience import PATIENCE


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


LOADED = """
import sys
from pathlib import Path
from plugbay.contracts.registry import CONTRACTS
print("pydantic" in sys.modules)
CONTRACTS["rune"].parse_manifest("{}", Path("/"), {}, None)
print("pydantic" in sys.modules)
print(*(name for name in CONTRACTS if f"plugbay.contracts.{name}.manifest" in sys.modules))
"""


def test_the_models_of_a_manifest_are_loaded_for_the_first_one() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stdout.split() == ["False", "True", "rune"], done.stderr
