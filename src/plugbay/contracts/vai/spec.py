"""The facts that every plugin of vai shares: the name of its manifest, the modes of a harness.

Here and not in `manifest`, so that a host knows them before it loads the models of the manifest.
"""

from __future__ import annotations

FILE_NAME = "vai-plugin.toml"

MODES = ("composite",)
"""The word that the contract shows for the mode of a harness; it gives no list."""
