"""How a test's plugin in plain Python begins: with the modules that its body may use, each loaded when it is used.

Owns the first lines of the programs that `nexo.py`, `kaged.py`, `ainb.py`, `vai.py` and `mcp_servers.py` write. Such a
process used to take 30 ms, of which 20 went into modules that most bodies never touch; the tests start thousands.
"""

from __future__ import annotations

from plugbay.conformance.engine.manifests import LIGHT_JSON

FLAG = "-S"
"""For the interpreter: no plugin here needs what is installed."""

OPENING = f"""
import os, sys, time

class Later:
    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        return getattr(__import__(self._name), attribute)

base64, signal, subprocess, threading = map(Later, ("base64", "signal", "subprocess", "threading"))
urllib = Later("urllib.parse")
json = type(sys)("json")
exec({LIGHT_JSON.read_text("utf-8")!r}, vars(json))
json.__getattr__ = Later("json").__getattr__
"""
