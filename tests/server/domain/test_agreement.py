"""What all gateways of a database must have in common."""

from __future__ import annotations

import pytest

from plugbay.model.errors import PlugbayError
from plugbay.server.domain.agreement import check_key, check_token
from plugbay.server.domain.secrets import Keyring, KeySource
from plugbay.store.database import Database
from tests.support.loops import run_on

run = run_on("uvloop")


def keyring(*keys: bytes) -> Keyring:
    return Keyring([key * 32 for key in keys], KeySource("a file"))


def test_a_key_must_open_what_the_first_gateway_sealed(sqlite_url: str) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        await check_key(database, keyring(b"1"))
        await check_key(database, keyring(b"1"))
        await check_key(database, keyring(b"2", b"1"))
        with pytest.raises(PlugbayError, match=r"another secret key.*PLUGBAY_SECRET_KEY_FILE"):
            await check_key(database, keyring(b"2"))
        await database.close()

    run(main)


def test_the_operator_token_is_that_of_the_others_and_changes_when_there_are_none(sqlite_url: str) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        await check_token(database, "one", alone=False)
        await check_token(database, "one", alone=False)
        with pytest.raises(PlugbayError, match=r"another operator token.*PLUGBAY_OPERATOR_TOKEN_FILE"):
            await check_token(database, "other", alone=False)
        await check_token(database, "other", alone=True)
        await check_token(database, "other", alone=False)
        await database.close()

    run(main)
