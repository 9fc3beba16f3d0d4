"""Every fault under every contract ends as documented."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from plugbay import CallFailed, SyncHost
from plugbay.testing import FakePlugin, faults
from plugbay.testing.faults import CALL, Fault
from tests.support.tiers import first_alone

if TYPE_CHECKING:
    from plugbay.testing.pytest_plugin import StartHost

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"

CONTRACTS = ("rune", "nexo", "kaged", "ainb", "vai", "mcp")

ROWS = {
    cells[0].strip("` "): [cell.strip() for cell in cells[1:]]
    for cells in re.findall(r"^\| (`\w+`) \|" + r" ([^|]*) \|" * 7 + "$", PAGE.read_text("utf-8"), re.MULTILINE)
}
"""The table of the documentation: per fault, what the plugin does and how a call ends under each contract."""


def test_the_page_lists_every_fault_with_the_words_for_it() -> None:
    assert {name: cells[0] for name, cells in ROWS.items()} == {name: it.what for name, it in faults.ALL.items()}


def test_a_fault_that_takes_no_time_cannot_be_given_any() -> None:
    assert faults.slow(0.5).seconds == 0.5 and faults.slow.seconds == 1.0
    with pytest.raises(TypeError, match="takes no time"):
        faults.wrong_id(1)


def make(fault: Fault, contract: str, folder: Path) -> FakePlugin:
    name = fault.name.replace("_", "-")
    brief = fault if fault.seconds is None else fault(0.05)
    if fault.moment == CALL:
        return FakePlugin(folder, {f"{fault.name}_tool": brief}, contract=contract, id=name)
    return FakePlugin(folder, {f"{fault.name}_tool": {"fault": fault.name}}, contract=contract, id=name, fault=brief)


def toml(contract: str) -> str:
    """A long timeout where an answer comes, since all plugins start at once, and a short one where none comes."""
    publisher, dash = "local/" if contract == "vai" else "", "_" if contract == "nexo" else "-"
    return "".join(
        f'[plugins."{publisher}{name.replace("_", dash)}"]\n'
        f"timeouts = {{ handshake = {0.5 if name == 'never_greets' else 40}, grace = 0.2, farewell = 0.2, "
        f"teardown = {0.2 if name == 'never_leaves' else 20} }}\n"
        for name in faults.ALL
    )


def ending(host: SyncHost, contract: str, name: str, expected: str) -> Any:
    """How the call ends; an expected timeout is kept short."""
    timeout = 1.5 if expected == "timeout" else 50
    tool = f"{name}_tool"
    try:
        if contract == "ainb":
            done = host.run_cli(name.replace("_", "-"), [tool, "{}"], timeout=timeout)
            assert done.stdout == b'{"fault":"%b"}\n' % name.encode()
        else:
            # An MCP server without a greeting has not declared its tools; its name still leads to it.
            name = f"{name.replace('_', '-')}/{tool}" if contract == "mcp" else tool
            host.call(name, {}, timeout=timeout)
    except CallFailed as error:
        return error.code
    return "succeeded"


@pytest.mark.parametrize("contract", first_alone(CONTRACTS))
def test_a_call_ends_as_the_page_says(contract: str, tmp_path: Path, plugbay_host: StartHost) -> None:
    for fault in faults.ALL.values():
        make(fault, contract, tmp_path / "plugins")
    expected = {name: cells[1 + CONTRACTS.index(contract)] for name, cells in ROWS.items()}
    host = plugbay_host(tmp_path / "plugins", toml=toml(contract))
    with ThreadPoolExecutor(4) as threads:
        calls = {name: threads.submit(ending, host, contract, name, code) for name, code in expected.items()}
        assert {name: call.result() for name, call in calls.items()} == expected
