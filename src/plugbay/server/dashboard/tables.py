"""Lists of the control plane as values: filters, rows, paging, and the next step of an empty list. Pure.

One template shows them all, so every list is searched, paged and read in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from plugbay.server.api.models import listing
from plugbay.store.pages import Part

T = TypeVar("T")

SHOWN = 50
"""Records on one page of a list."""


class Cell(msgspec.Struct, frozen=True):
    """One value of a row."""

    text: str = ""
    about: str = ""
    """A second text beside it, less prominent."""
    link: str = ""
    tone: str = ""
    """The tone of a badge; empty: plain text."""
    at: float | None = None
    """A moment, shown as its age instead of the text."""
    mono: bool = False
    number: bool = False
    more: str = ""
    """A longer text, behind a click."""
    act: str = ""
    """Where a button with the text sends its form."""


class Filter(msgspec.Struct, frozen=True):
    """A field above a list. `search` finds parts of texts; the others must match exactly."""

    name: str
    label: str
    value: str = ""
    choices: tuple[str, ...] = ()
    """Empty: any text."""
    hint: str = ""
    scope: bool = False
    """Whether it chooses whose records are listed: an empty list then is the first step, not a search in vain."""


class NextStep(msgspec.Struct, frozen=True):
    """What to do about an empty list: as a button, and as a command."""

    title: str
    text: str
    command: str = ""
    label: str = ""
    link: str = ""


class Table(msgspec.Struct, frozen=True):
    """One page of a list. The first cell of a row names the record."""

    name: str
    """What it lists, for screen readers."""
    path: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    filters: tuple[Filter, ...]
    empty: NextStep
    older: str = ""
    """The query of the next page; empty: this is the last."""
    newest: str = ""
    """The query of the first page; empty: this is it."""

    @property
    def is_filtered(self) -> bool:
        """Whether some records may be left out."""
        return any(each.value for each in self.filters if not each.scope)

    @property
    def has_values(self) -> bool:
        return any(each.value for each in self.filters)


def table_of(
    name: str,
    path: str,
    columns: Sequence[str],
    part: Part[T],
    to_row: Callable[[T], tuple[Cell, ...]],
    *,
    filters: Sequence[Filter],
    empty: NextStep,
    cursor: str = "",
) -> Table:
    """One page of records as a table; `cursor` is that of the page itself."""
    found = listing(part, to_row)
    asked = {each.name: each.value for each in filters if each.value}
    older = query_of(asked, cursor=found.next_cursor or "")
    return Table(
        name,
        path,
        tuple(columns),
        tuple(found.items),
        tuple(filters),
        empty,
        older if found.next_cursor else "",
        (query_of(asked) or "newest") if cursor else "",
    )


def query_of(asked: Mapping[str, str], **more: str) -> str:
    """A query string, without empty values."""
    return urlencode({name: value for name, value in {**asked, **more}.items() if value})
