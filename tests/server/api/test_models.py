"""Shared parts of requests and answers."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest
from pydantic import ValidationError

from plugbay.server.api.models import LONGEST_CURSOR, Answer, Body, ChosenId, Name, Time, listing, parse_page
from plugbay.server.domain.errors import GatewayError
from plugbay.store.pages import Part
from tests.support.requirements import requirement


class Sample(Body):
    name: Name
    id: ChosenId = "org_1"


def test_an_unknown_field_is_an_error() -> None:
    assert Sample(name="Acme").id == "org_1"
    with pytest.raises(ValidationError, match="Extra inputs"):
        Sample.model_validate({"name": "Acme", "nmae": "x"})


@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", "x" * 201])
def test_a_name_is_one_line_of_bounded_length(name: str) -> None:
    with pytest.raises(ValidationError):
        Sample(name=name)


@pytest.mark.parametrize("id", ["", "a:b", "a/b", "-a", "a" * 65])
def test_a_chosen_id_can_stand_in_a_path(id: str) -> None:
    with pytest.raises(ValidationError):
        Sample(name="Acme", id=id)


@requirement("vai:control-paging")
@pytest.mark.parametrize("after", [(1_770_000_000.123456, "org_1"), (0.0, "é" * 20)])
def test_a_cursor_leads_to_where_the_part_before_ended(after: tuple[float, str]) -> None:
    part = listing(Part(("a", "b"), after), str.upper)
    assert part.items == ["A", "B"] and part.next_cursor is not None
    assert parse_page(50, part.next_cursor).after == after
    assert listing(Part(("a",)), str.upper).next_cursor is None
    assert len(part.next_cursor) < LONGEST_CURSOR


@requirement("vai:control-paging")
@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "é",
        "####",
        urlsafe_b64encode(b"[1]").decode(),
        urlsafe_b64encode(b'[-1, "a"]').decode(),
        urlsafe_b64encode(b'["a", 1]').decode(),
        urlsafe_b64encode(b'[1, "a\\u0000"]').decode(),
        urlsafe_b64encode(b'[1e300, "a"]').decode(),
        urlsafe_b64encode(b"\xff\xfe").decode(),
    ],
)
def test_another_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(GatewayError) as raised:
        parse_page(50, cursor)
    assert (raised.value.status, raised.value.param) == (400, "cursor")


def test_a_time_of_a_record_is_shown_as_rfc_3339() -> None:
    class Shown(Answer):
        at: Time
        ended_at: Time | None

    shown = Shown.model_validate({"at": 1.5, "ended_at": None})
    assert shown.model_dump() == {"at": "1970-01-01T00:00:01.500000Z", "ended_at": None}
    assert Shown.model_validate(shown.model_dump()) == shown
