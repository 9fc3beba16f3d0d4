"""The `repr` of structs with secrets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from plugbay.contracts.contract import HostSide
from plugbay.host.admin.servers import ServerEntry
from plugbay.host.invocations.context import Delegation
from plugbay.host.request import ExportBinding
from plugbay.host.supervision.binding import Binding
from plugbay.mcp_remote.oauth import Attempt, Client
from plugbay.model.guarded import Guarded
from plugbay.server.dashboard.authentication import Session

SECRET = "s3cret"


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


@pytest.mark.parametrize(
    "holder",
    [
        HostSide(secrets={"key": SECRET}),
        ServerEntry("a", secrets={"key": SECRET}),
        Delegation(token=SECRET),
        ExportBinding(secrets={"key": SECRET}),
        Binding(spec=None, env=(("KEY", SECRET),), secrets={"key": SECRET}),  # type: ignore[arg-type]
        Client("a", SECRET),
        Attempt(None, Client("a", SECRET), "", (), SECRET, SECRET),  # type: ignore[arg-type]
        Session(SECRET.encode(), SECRET, 0.0),
    ],
    ids=lambda holder: type(holder).__name__,
)
def test_no_struct_of_the_product_shows_its_secrets(holder: Any) -> None:
    assert SECRET in str(msgspec.structs.asdict(holder)), "the struct has the secret"
    assert SECRET not in repr(holder)
    assert set(holder.HIDDEN) <= set(holder.__struct_fields__)
