"""What all bodies have in common."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from plugbay.server.api.models import Body, ChosenId, Name


class Sample(Body):
    name: Name
    id: ChosenId = "org_1"


def test_a_field_that_nobody_knows_is_an_error() -> None:
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
