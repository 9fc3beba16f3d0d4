"""For plugin authors: one `Plugin`, plain functions, `plugin.run()`.

Import-light on purpose: a plugin pays for every import before its first answer.
"""

from __future__ import annotations

from plugbay.sdk.plugin import Plugin, ToolError
from plugbay.sdk.stdio import claim_early

__all__ = ["Plugin", "ToolError"]

claim_early()
