"""`[retention]` of plugbay.toml."""

from __future__ import annotations

import pytest

from plugbay.host.admin import operating
from plugbay.host.config import config
from plugbay.host.config.retention import RetentionConfig, days
from plugbay.host.host import Host
from plugbay.model.errors import ConfigInvalid


def test_each_kind_has_its_own_time_and_what_is_not_named_keeps_its_own() -> None:
    told = config.parse(
        '[retention]\ncalls = "12 hours"\ninvocations = "1 day"\naudit = "365 days"\nevents = "forever"'
    )
    kept = told.retention.model_dump()
    assert kept == RetentionConfig().model_dump() | {
        "calls": 43_200.0,
        "invocations": days(1),
        "audit": days(365),
        "events": None,
    }


def test_what_is_kept_where_nothing_is_said_is_what_the_docs_say() -> None:
    assert RetentionConfig() == config.parse("").retention
    in_days = {kind: kept and kept / days(1) for kind, kept in RetentionConfig().model_dump().items()}
    assert in_days == {
        "calls": 30,
        "invocations": 90,
        "deliveries": 90,
        "dead_letters": None,
        "events": 90,
        "audit": None,
    }


@pytest.mark.parametrize(
    "value",
    ['"0 days"', '"30"', "30", '"1 minute"', '"-1 days"', '"36501 days"', '""', "true", '"1.5 days"', '"Forever"'],
)
def test_what_is_no_time_is_refused_with_an_example(value: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"retention\.calls.*90 days"):
        config.parse(f"[retention]\ncalls = {value}")


def test_a_kind_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="invocations"):
        config.parse('[retention]\ninvocation = "30 days"')


def test_another_time_takes_effect_with_the_next_start() -> None:
    changed = config.parse('[retention]\ncalls = "1 day"')
    assert operating.apply(Host([]), changed).restart == ("retention",)
