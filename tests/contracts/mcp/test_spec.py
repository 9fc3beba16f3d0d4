"""The facts that every MCP server shares as a plugin."""

from __future__ import annotations

from pathlib import Path

from plugbay.contracts.mcp.spec import resident
from plugbay.model.spec import Lifetime
from tests.support.requirements import requirement


@requirement("mcp:manifest-spec")
def test_a_server_is_resident_lazy_and_stopped_when_nobody_uses_it() -> None:
    spec = resident("files", ("npx", "x"), Path("/p"))
    assert (spec.contract, spec.id, spec.name, spec.command) == ("mcp", "files", "files", ("npx", "x"))
    assert (spec.lifetime, spec.eager, spec.idle_seconds) == (Lifetime.RESIDENT, False, 600.0)
    assert (spec.timeouts.handshake, spec.timeouts.call) == (30.0, 60.0)
    assert (spec.capabilities, spec.optional_capabilities) == ((), ("sampling", "elicitation", "roots"))
    assert spec.sandbox is None


@requirement("mcp:manifest-spec")
def test_a_server_is_given_no_more_of_the_environment_than_it_needs() -> None:
    inherited = resident("files", ("npx",), Path("/p")).env_inherit
    assert "PATH" in inherited and "HOME" in inherited
    assert not any("KEY" in name or "TOKEN" in name for name in inherited)
