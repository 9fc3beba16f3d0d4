"""A host in memory, to test a plugin with: no process, no files, and every rule of the contract.

from plugbay.sdk import testing

def test_it_greets():
    with testing.host(plugin, contract="nexo") as host:
        assert host.call("greet", {"name": "Ada"}) == {"text": "Hello, Ada."}
"""

from __future__ import annotations

try:
    from plugbay.sdk.testing.memory_host import CallFailed, Failure, MemoryHost, contracts_of, host
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("plugbay"):
        raise
    text = f"plugbay.sdk.testing needs {error.name}: pip install 'plugbay-sdk[testing]'"
    raise ImportError(text, name=error.name) from None

__all__ = ["CallFailed", "Failure", "MemoryHost", "contracts_of", "host"]
