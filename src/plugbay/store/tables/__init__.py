"""Every table. Importing this package makes `METADATA` complete; each area has a module of its own."""

from __future__ import annotations

from plugbay.store.tables import conversations, deliveries, plugins, tenancy

__all__ = ["conversations", "deliveries", "plugins", "tenancy"]
