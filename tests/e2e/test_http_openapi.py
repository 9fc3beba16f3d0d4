"""The OpenAPI document is true: whatever it allows is asked of a real server, and every answer is as it says.

The few requests of each operation that `make test` makes are always the same; `make prove` makes forty times as many.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from requests import Session
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks as conformance

from plugbay.server.api.sse import MEDIA_TYPE
from plugbay.server.app import ROUTERS
from tests.support.effort import EFFORT
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement
from tests.support.tiers import few
from tests.support.worlds import World, world_at

EXAMPLES = 6 * EFFORT

WHO = ("admin", "viewer", "delegate", "bootstrap")

CHECKS = [
    not_a_server_error,
    conformance.status_code_conformance,
    conformance.content_type_conformance,
    conformance.response_headers_conformance,
    conformance.response_schema_conformance,
]

OPERATIONS = [
    (method, route.path_format)  # type: ignore[attr-defined]
    for router in ROUTERS
    for route in router.routes
    for method in sorted(route.methods)  # type: ignore[attr-defined]
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_at(tmp_path_factory.mktemp("world")) as world:
        yield world


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session() as session:
        yield session


@requirement("vai:control-openapi")
@pytest.mark.parametrize("asked", few(OPERATIONS, 6), ids="-".join)
def test_every_answer_is_as_the_document_says(asked: tuple[str, str], world: World, session: Session) -> None:
    method, path = asked
    operation = schemathesis.openapi.from_dict(world.openapi)[path][method]
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    cases = st.one_of([operation.as_strategy(generation_mode=mode) for mode in modes])

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, who=st.sampled_from(WHO), known=st.booleans())
    def ask(case: Case[Any], who: str, known: bool) -> None:
        if known:
            name_what_there_is(case, world)
        base = world.ending_url if streams(world, path, method) else world.url
        headers = {"Authorization": f"Bearer {world.tokens[who]}"}
        response = case.call(base_url=base, session=session, headers=headers, timeout=PATIENCE)
        strict = [] if known else [conformance.negative_data_rejection]
        case.validate_response(response, checks=[*CHECKS, *strict], headers=headers)

    ask()


def name_what_there_is(case: Case[Any], world: World) -> None:
    """Have a request be about things that are there: nothing but chance would have it name one."""
    for place in (case.path_parameters, case.query, case.body):
        fill(place, world)


def fill(value: Any, world: World) -> None:
    todo = [value]
    for each in todo:
        if isinstance(each, list):
            todo += each
        if isinstance(each, dict):
            known = {name: world.ids[name] for name in each if isinstance(each[name], str) and name in world.ids}
            each.update(known)
            todo += each.values()


def streams(world: World, path: str, method: str) -> bool:
    """Whether an answer may go on for ever."""
    answers = world.openapi["paths"][path][method.lower()]["responses"]
    return any(MEDIA_TYPE in answer.get("content", {}) for answer in answers.values())
