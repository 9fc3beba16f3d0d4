"""Times and JSON are read back as written, on both databases."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.store.database import Database
from plugbay.store.orgs import Org, get, insert
from tests.support.loops import Run


@pytest.mark.parametrize("at", [0.0, 1_770_000_000.000001, 1_770_000_000.999999, 4_102_444_800.5])
def test_a_moment_comes_back_to_the_microsecond(database_url: str, at: float, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await insert(tx, Org("org_1", "Acme", {}, at, at))
            found = await get(tx, "org_1")
        assert found is not None and found.created_at == at
        await database.close()

    run(main)


@pytest.mark.parametrize(
    "value",
    [{}, {"b": 1, "a": [None, True, 2.5, "é", {"z": {}}]}, {"nul": "a\0b"}, {"long": 2**63}],
    ids=["empty", "nested", "nul", "long"],
)
def test_json_comes_back_with_its_keys_in_order(database_url: str, value: dict[str, Any], run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await insert(tx, Org("org_1", "Acme", value, 1.0, 1.0))
            found = await get(tx, "org_1")
        assert found is not None
        assert found.policy == value and list(found.policy) == list(value)
        await database.close()

    run(main)
