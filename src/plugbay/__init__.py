"""plugbay: one host for every out-of-process plugin of AI agents.

Names are loaded when first used, so `import plugbay` costs nothing and `plugbay.sdk` never loads the host. This file is
part of the distribution plugbay-sdk, which may be installed without the host.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from plugbay.host.host import Host
    from plugbay.host.request import CallResult
    from plugbay.host.services.llm.chat import ChatReply, ChatRequest
    from plugbay.host.sync import SyncHost
    from plugbay.mcp_server.model_tools import ModelTools, SyncModelTools, ToolAnswer
    from plugbay.model.errors import CallFailed, Code, ConfigInvalid, Failure, ManifestInvalid, PlugbayError

_HOMES = {
    **dict.fromkeys(("ModelTools", "SyncModelTools", "ToolAnswer"), "plugbay.mcp_server.model_tools"),
    "Host": "plugbay.host.host",
    "CallResult": "plugbay.host.request",
    **dict.fromkeys(("ChatReply", "ChatRequest"), "plugbay.host.services.llm.chat"),
    "SyncHost": "plugbay.host.sync",
    **dict.fromkeys(
        ("CallFailed", "Code", "ConfigInvalid", "Failure", "ManifestInvalid", "PlugbayError"),
        "plugbay.model.errors",
    ),
}

__all__ = [
    "CallFailed",
    "CallResult",
    "ChatReply",
    "ChatRequest",
    "Code",
    "ConfigInvalid",
    "Failure",
    "Host",
    "ManifestInvalid",
    "ModelTools",
    "PlugbayError",
    "SyncHost",
    "SyncModelTools",
    "ToolAnswer",
    "__version__",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'plugbay' has no attribute {name!r}")
    import importlib

    try:
        value = getattr(importlib.import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name != ".".join(home.split(".")[:2]):
            raise
        raise ImportError(f"plugbay.{name} needs the host: pip install plugbay", name=error.name) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
