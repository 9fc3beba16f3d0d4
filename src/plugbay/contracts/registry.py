"""The list of contracts. A new contract is a folder with a `contract.py`, an import and an entry here."""

from __future__ import annotations

from plugbay.contracts.ainb.contract import CONTRACT as AINB
from plugbay.contracts.contract import Contract
from plugbay.contracts.kaged.contract import CONTRACT as KAGED
from plugbay.contracts.mcp.contract import CONTRACT as MCP
from plugbay.contracts.nexo.contract import CONTRACT as NEXO
from plugbay.contracts.rune.contract import CONTRACT as RUNE
from plugbay.contracts.vai.contract import CONTRACT as VAI

CONTRACTS: dict[str, Contract] = {contract.name: contract for contract in (RUNE, NEXO, KAGED, AINB, VAI, MCP)}


def contract_of(file_name: str) -> Contract | None:
    """The contract whose manifest has this file name."""
    return next((contract for contract in CONTRACTS.values() if file_name in contract.manifest_files), None)
