"""Plugin storage: JSON values by key, in one SQLite file, with a quota for each plugin.

A plugin sees only its own values. Grants are checked elsewhere.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Protocol

from plugbay.host.disk.sqlite import Database, Schema
from plugbay.model.errors import CallFailed
from plugbay.model.gate import (
    MAX_KEYS,
    MAX_LISTED,
    MAX_STORED,
    invalid,
    key_problem,
    prefix_problem,
    refuse_storage,
    value_problem,
)
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import Unencodable

SCHEMA = Schema(
    "plugin storage",
    0x50425331,  # "PBS1"
    (
        (
            # Keys are bytes: their order is the same in every language, and a prefix is a range.
            """CREATE TABLE stored (
                plugin_id TEXT NOT NULL,
                key BLOB NOT NULL,
                size INTEGER NOT NULL,
                value BLOB NOT NULL,
                PRIMARY KEY (plugin_id, key)
            )""",
            # A covering index for the sum of the quota.
            "CREATE INDEX stored_sizes ON stored (plugin_id, key, size)",
        ),
    ),
)

_GET = "SELECT value FROM stored WHERE plugin_id = ? AND key = ?"
_SET = "INSERT OR REPLACE INTO stored (plugin_id, key, size, value) VALUES (?, ?, ?, ?)"
_DELETE = "DELETE FROM stored WHERE plugin_id = ? AND key = ?"
_KEYS = "SELECT key FROM stored WHERE plugin_id = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?"
_OTHERS = "SELECT count(*), total(size) FROM stored WHERE plugin_id = ? AND key <> ?"


class Storage(Protocol):
    """The storage of every plugin: in a file (`PluginStorage`), or in the database of a control plane.

    Methods raise `CallFailed`, `open` a `PlugbayError`.
    """

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def get(self, plugin_id: str, key: str) -> tuple[bool, Any]:
        """Whether the key exists, and its value."""
        ...

    async def set(self, plugin_id: str, key: str, value: Any) -> None:
        """Store a JSON value under this key, replacing the previous one."""
        ...

    async def delete(self, plugin_id: str, key: str) -> bool:
        """Delete a key; False when there was none."""
        ...

    async def keys(self, plugin_id: str, prefix: str = "", limit: int = MAX_LISTED) -> list[str]:
        """The first keys with this prefix, sorted."""
        ...


class PluginStorage:
    """The storage of every plugin of one host. All methods raise `CallFailed`, `open` a `PlugbayError`.

    A key or value that is too large is `invalid_input`; a plugin over its quota gets `unavailable` until it deletes
    something.
    """

    def __init__(self, path: Path | str, *, max_total: int = MAX_STORED, max_keys: int = MAX_KEYS) -> None:
        self._database = Database(path, SCHEMA)
        self._codec = MsgspecCodec()
        self._max_total = max_total
        self._max_keys = max_keys

    async def open(self) -> None:
        await self._database.open()

    async def close(self) -> None:
        await self._database.close()

    async def __aenter__(self) -> PluginStorage:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get(self, plugin_id: str, key: str) -> tuple[bool, Any]:
        """Whether the key exists, and its value."""
        name = key_bytes(key)
        row = await self._database.run(lambda connection: connection.execute(_GET, (plugin_id, name)).fetchone())
        return (False, None) if row is None else (True, self._codec.decode(row[0]))

    async def set(self, plugin_id: str, key: str, value: Any) -> None:
        """Store a JSON value under this key, replacing the previous one."""
        name, encoded = key_bytes(key), encode_value(self._codec, value)
        size = len(name) + len(encoded)

        def store(connection: sqlite3.Connection) -> None:
            keys, used = connection.execute(_OTHERS, (plugin_id, name)).fetchone()
            refusal = refuse_storage(keys + 1, int(used) + size, max_keys=self._max_keys, max_total=self._max_total)
            if refusal is not None:
                raise CallFailed(refusal)
            connection.execute(_SET, (plugin_id, name, size, encoded))

        await self._database.write(store)

    async def delete(self, plugin_id: str, key: str) -> bool:
        """Delete a key; False when there was none."""
        name = key_bytes(key)
        return await self._database.write(
            lambda connection: connection.execute(_DELETE, (plugin_id, name)).rowcount == 1
        )

    async def keys(self, plugin_id: str, prefix: str = "", limit: int = MAX_LISTED) -> list[str]:
        """The first keys with this prefix, sorted."""
        check_problem(prefix_problem(prefix))
        first = prefix.encode()
        beyond = first + b"\xff"  # above every byte of UTF-8
        most = max(0, min(limit, MAX_LISTED))
        rows = await self._database.run(
            lambda connection: connection.execute(_KEYS, (plugin_id, first, beyond, most)).fetchall()
        )
        return [key.decode() for (key,) in rows]


def encode_value(codec: MsgspecCodec, value: Any) -> bytes:
    """A value as JSON; raises `CallFailed` if it is too large."""
    try:
        encoded = bytes(codec.dump(value))
    except Unencodable as error:
        raise CallFailed(invalid(f"the value has no JSON form: {error}")) from None
    check_problem(value_problem(len(encoded)))
    return encoded


def key_bytes(key: str) -> bytes:
    """A key as it is stored; raises `CallFailed` for an invalid one."""
    check_problem(key_problem(key))
    return key.encode()


def check_problem(problem: str | None) -> None:
    if problem is not None:
        raise CallFailed(invalid(problem))
