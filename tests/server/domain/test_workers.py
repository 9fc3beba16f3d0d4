"""What conversations need of plugins is what bindings and invocations give, and what tests script."""

from __future__ import annotations

from plugbay.server.domain.bound_workers import BoundWorkers
from plugbay.server.domain.credentials import Credentials
from plugbay.server.domain.workers import Budgets, Workers, WorkRefused
from tests.support.conversing import ScriptedWorkers


def test_whoever_is_given_to_conversations_has_what_they_ask_of_it() -> None:
    kinds: list[type[Workers]] = [BoundWorkers, ScriptedWorkers]
    budgets: type[Budgets] = Credentials
    assert all(hasattr(kind, name) for kind in kinds for name in ("serving", "bound", "do"))
    assert hasattr(budgets, "spend")


def test_a_refusal_says_why() -> None:
    refused = WorkRefused("binding.not_active", "it is off", inactive=True)
    assert (str(refused), refused.inactive) == ("binding.not_active: it is off", True)
