"""A host in memory, to test a plugin with: no process, no files, and every rule of the contract.

from plugbay.sdk import testing

def test_it_greets():
    with testing.host(plugin, contract="nexo") as host:
        assert host.call("greet", {"name": "Ada"}) == {"text": "Hello, Ada."}
"""

from __future__ import annotations

from plugbay.sdk.testing.memory_host import CallFailed, Failure, MemoryHost, contracts_of, host

__all__ = ["CallFailed", "Failure", "MemoryHost", "contracts_of", "host"]
