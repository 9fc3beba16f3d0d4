"""Records that are too old to be kept: what there is of them, and having them removed at once."""

from __future__ import annotations

from pydantic import Field

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.idempotency import Router, apart
from plugbay.server.api.models import Answer, Body
from plugbay.server.domain.principal import HOST

router = Router(tags=["records"])


class PruneIn(Body):
    dry_run: bool = Field(default=False, description="Only say what would be removed.")


class OldOut(Answer):
    kept: float | None = Field(description="Seconds for which such a record is kept once it is over; null: for ever.")
    number: int = Field(description="How many were removed, or would be.")


class PruneOut(Answer):
    dry_run: bool
    records: dict[str, OldOut]


@router.post("/api/v1/records:prune", **needs(HOST))
@apart  # in many small transactions, so that nobody waits long
async def prune_records(body: PruneIn, caller: Caller, gateway: TheGateway) -> PruneOut:
    """Remove what is too old, now and not only in a while; as `[retention]` of plugbay.toml has it."""
    old = await (gateway.retention.planned() if body.dry_run else gateway.retention.prune(caller))
    return PruneOut.model_validate({"dry_run": body.dry_run, "records": old})
