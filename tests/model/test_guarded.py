"""The `repr` of structs with secrets."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from plugbay.model.guarded import Guarded


class Open(msgspec.Struct, frozen=True):
    name: str
    token: str


class Closed(Guarded, msgspec.Struct, frozen=True):
    HIDDEN = ("token",)

    name: str
    token: str


class Inherited(Closed, frozen=True):
    more: int = 0


def test_a_hidden_field_is_left_out() -> None:
    assert repr(Open("a", "s3cret")) == "Open(name='a', token='s3cret')"
    assert repr(Closed("a", "s3cret")) == "Closed(name='a')"
    assert "s3cret" not in f"{[Closed('a', 's3cret')]} {Closed('a', 's3cret')!s}"


def test_a_subclass_hides_it_too() -> None:
    assert repr(Inherited("a", "s3cret", 1)) == "Inherited(name='a', more=1)"


def test_a_hidden_field_is_a_field_like_any_other() -> None:
    assert Closed("a", "b") != Closed("a", "c")
    assert replace(Closed("a", "b"), token="c").token == "c"
    assert msgspec.structs.asdict(Closed("a", "b")) == {"name": "a", "token": "b"}
