"""What all gateways of a database must have in common: the key that seals secrets, and the operator's token.

A gateway with another key would store secrets that the others cannot read; with another token, a request would be
refused depending on the gateway that it reaches. Such a gateway is refused at its start.
"""

from __future__ import annotations

import msgspec

from plugbay.model.errors import PlugbayError
from plugbay.server.domain.credentials import TOKEN_VARIABLE, digest_of
from plugbay.server.domain.secrets import FILE_VARIABLE, Keyring, KeysUnusable, Sealed
from plugbay.store import cluster_settings as rows
from plugbay.store.database import Database

KEY, TOKEN = "secret_key", "operator_token"

KNOWN = "plugbay"
"""A text that each gateway must be able to open."""


async def check_key(database: Database, keyring: Keyring) -> None:
    """Raises `PlugbayError` unless this keyring opens what the first gateway sealed."""
    mine = keyring.seal(KNOWN, KEY)
    async with database.transaction() as tx:
        stored = await rows.agree(tx, KEY, msgspec.json.encode(mine))
    try:
        keyring.open(msgspec.json.decode(stored, type=Sealed), KEY)
    except KeysUnusable as error:
        hint = f"mount the same file for all gateways and name it in {FILE_VARIABLE}"
        raise PlugbayError(f"other gateways of this database have another secret key: {error}; {hint}") from None


async def check_token(database: Database, token: str, *, alone: bool) -> None:
    """Raises `PlugbayError` unless other gateways have this operator token; a gateway that is alone sets it."""
    mine = digest_of(token)
    async with database.transaction() as tx:
        if await rows.agree(tx, TOKEN, mine) == mine:
            return
        if not alone:
            hint = f"mount the same file for all gateways and name it in {TOKEN_VARIABLE}"
            raise PlugbayError(f"other gateways of this database have another operator token; {hint}")
        await rows.replace(tx, TOKEN, mine)
