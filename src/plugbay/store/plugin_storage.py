"""`SqlStorage`: the storage of plugins that run on nodes, in the database of the control plane."""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, func, select

from plugbay.host.services.storage import check_problem, encode_value, key_bytes
from plugbay.model.errors import CallFailed
from plugbay.model.gate import MAX_KEYS, MAX_LISTED, MAX_STORED, prefix_problem, refuse_storage
from plugbay.store.database import Database
from plugbay.store.plugin_data import changing, lock, viewing
from plugbay.store.statements import upsert
from plugbay.store.tables import PLUGIN_STORAGE
from plugbay.wire.fast_json import MsgspecCodec

_ROWS = PLUGIN_STORAGE.c


class SqlStorage:
    """As `PluginStorage`. A change is part of the open transaction of the caller, if there is one."""

    def __init__(self, database: Database, *, max_total: int = MAX_STORED, max_keys: int = MAX_KEYS) -> None:
        self._database = database
        self._codec = MsgspecCodec()
        self._max_total = max_total
        self._max_keys = max_keys

    async def open(self) -> None:
        """Nothing to do: the database is open."""

    async def close(self) -> None:
        """Nothing to do: the control plane closes its database."""

    async def get(self, plugin_id: str, key: str) -> tuple[bool, Any]:
        """As `PluginStorage.get`."""
        query = select(PLUGIN_STORAGE.c.value).where(_ROWS.plugin_id == plugin_id, _ROWS.key == key_bytes(key))
        async with viewing(self._database) as tx:
            found = (await tx.execute(query)).first()
        return (False, None) if found is None else (True, self._codec.decode(found[0]))

    async def set(self, plugin_id: str, key: str, value: Any) -> None:
        """As `PluginStorage.set`."""
        name, encoded = key_bytes(key), encode_value(self._codec, value)
        size = len(name) + len(encoded)
        others = select(func.count(), func.coalesce(func.sum(PLUGIN_STORAGE.c.size), 0))
        async with changing(self._database) as tx:
            await lock(tx, f"storage {plugin_id}")
            keys, used = (await tx.execute(others.where(_ROWS.plugin_id == plugin_id, _ROWS.key != name))).one()
            limits = {"max_keys": self._max_keys, "max_total": self._max_total}
            refusal = refuse_storage(keys + 1, int(used) + size, **limits)
            if refusal is not None:
                raise CallFailed(refusal)
            row = {"plugin_id": plugin_id, "key": name, "size": size, "value": encoded}
            await upsert(tx, PLUGIN_STORAGE, row)

    async def delete(self, plugin_id: str, key: str) -> bool:
        """As `PluginStorage.delete`."""
        async with changing(self._database) as tx:
            removed = await tx.execute(
                delete(PLUGIN_STORAGE).where(_ROWS.plugin_id == plugin_id, _ROWS.key == key_bytes(key))
            )
            return bool(removed.rowcount)

    async def keys(self, plugin_id: str, prefix: str = "", limit: int = MAX_LISTED) -> list[str]:
        """As `PluginStorage.keys`."""
        check_problem(prefix_problem(prefix))
        first = prefix.encode()
        query = (
            select(_ROWS.key)
            .where(_ROWS.plugin_id == plugin_id, _ROWS.key >= first, _ROWS.key < first + b"\xff")
            .order_by(_ROWS.key)
        )
        async with viewing(self._database) as tx:
            rows = (await tx.execute(query.order_by(_ROWS.key).limit(max(0, min(limit, MAX_LISTED))))).all()
        return [key.decode() for (key,) in rows]
