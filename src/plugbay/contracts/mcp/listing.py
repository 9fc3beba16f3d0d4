"""Pagination of MCP lists: reading a server's lists page by page, and building pages of our own.

`Listing` bounds how much of a server's lists is read. Definitions stay the server's own objects, unchanged; unusable
entries are left out and odd ones kept, each with a warning.
"""

from __future__ import annotations

from plugbay.contracts.mcp.messages import LISTS
from plugbay.model.text import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from plugbay.contracts.mcp.messages import List
    from plugbay.model.errors import Failure

MAX_PAGES = 1_000
"""Pages of one list; a server that always has another one must not keep its host listing for ever."""

MAX_ENTRIES = 10_000
"""Entries of one list; the largest real catalogues have some hundreds."""

MAX_LIST_BYTES = 16 << 20
"""Bytes of the answers that make one list, as many as a line has: what is offered takes five seconds to look at then,
and no other plugin is served meanwhile. The largest real catalogues have some hundred thousand."""

MAX_WARNINGS = 100
"""Warnings kept; the odd entries of a list are usually odd in the same way."""

MAX_NAME = 128
"""Characters of a tool's name, by the recommendation of the contract."""

PAGE_BYTES = 8 << 20
"""Bytes of the entries of a page: half of what a message may have, whatever stands around them."""

_NAME_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."


class Listing:
    """One round of listing. `offer` is what was known before, and list by list becomes what is known now."""

    __slots__ = ("_bytes", "_cursor", "_entries", "_known", "_pages", "_seen", "_todo", "offer", "warnings")

    def __init__(self, lists: Iterable[List], offer: Mapping[str, list[dict[str, Any]]]) -> None:
        self.offer = dict(offer)
        self.warnings: list[str] = []
        self._todo = list(lists)
        self._begin()

    def _begin(self) -> None:
        self._entries: list[dict[str, Any]] = []
        self._known: set[str] = set()
        self._seen: set[str] = set()
        self._cursor: str | None = None
        self._pages = self._bytes = 0

    @property
    def current(self) -> List | None:
        """Which list is asked for; None when all is listed."""
        return self._todo[0] if self._todo else None

    def build_params(self) -> dict[str, Any]:
        """The parameters for the next page. Any cursor is one, even an empty text."""
        return {} if self._cursor is None else {"cursor": self._cursor}

    def take_page(self, result: Any, size: int) -> None:
        """One page, of `size` bytes."""
        listed = self._todo[0]
        page = result if isinstance(result, dict) else {}
        entries = page.get(listed.key)
        if not isinstance(entries, list):
            self.warn(f"{listed.method} was answered without {listed.key} (an array)")
            entries = []
        self._pages += 1
        self._bytes += size
        room = MAX_ENTRIES - len(self._entries) if self._bytes <= MAX_LIST_BYTES else 0
        for entry in entries[:room]:
            self._keep_entry(listed, entry)
        if len(entries) <= room and self._has_next_page(listed, page.get("nextCursor")):
            return
        if len(entries) > room:
            self._warn_of_rest(listed)
        self.offer[listed.name] = self._entries
        self._begin_next()

    def skip_list(self, failure: Failure, *, expected: bool) -> None:
        """The list could not be read: the previous one stays. `expected`: no warning."""
        if not expected:
            self.warn(f"{self._todo[0].method} failed: {failure.message}")
        self._begin_next()

    def warn(self, text: str) -> None:
        """Say something once."""
        text = printable(text.encode("utf-8", "backslashreplace"))
        if text not in self.warnings and len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(text)

    def _begin_next(self) -> None:
        del self._todo[0]
        self._begin()

    def _has_next_page(self, listed: List, cursor: Any) -> bool:
        """Whether there is another page to ask for."""
        if cursor is None:
            return False
        if not isinstance(cursor, str) or cursor in self._seen:
            what = "a cursor that it had given before" if isinstance(cursor, str) else "a cursor that is not a string"
            self.warn(f"{listed.method} was answered with {what}; the rest of the list is not read")
            return False
        if self._pages >= MAX_PAGES or self._bytes >= MAX_LIST_BYTES:
            self._warn_of_rest(listed)
            return False
        self._seen.add(cursor)
        self._cursor = cursor
        return True

    def _warn_of_rest(self, listed: List) -> None:
        bounds = f"{MAX_ENTRIES:,} entries, {MAX_PAGES:,} pages or {MAX_LIST_BYTES:,} bytes"
        self.warn(f"{listed.method} has more than {bounds}; the rest of the list is not read")

    def _keep_entry(self, listed: List, entry: Any) -> None:
        identity = entry.get(listed.identity) if isinstance(entry, dict) else None
        if not (isinstance(identity, str) and identity):
            self.warn(f"{listed.method} lists something without {listed.identity}, which cannot be used")
            return
        if identity in self._known:
            self.warn(f"{listed.method} lists {identity[:MAX_NAME]!r} twice; the first one counts")
            return
        if listed.name == "tools":
            self._check_tool(identity, entry)
        self._known.add(identity)
        self._entries.append(entry)

    def _check_tool(self, name: str, tool: dict[str, Any]) -> None:
        if len(name) > MAX_NAME or name.strip(_NAME_LETTERS):
            self.warn(f"the tool {name[:MAX_NAME]!r} has a name that some clients refuse")
        if not isinstance(tool.get("inputSchema"), dict):
            self.warn(f"the tool {name[:MAX_NAME]!r} has no inputSchema, so its input is not checked")


def announced_lists(capabilities: Mapping[str, Any]) -> list[List]:
    """The lists to ask for. A server that announces none of them is asked for its tools: many forget to say so."""
    said = [listed for listed in LISTS if isinstance(capabilities.get(listed.capability), dict)]
    return said or [LISTS[0]]


# Pages of our own lists.


def build_page(
    entries: Sequence[Mapping[str, Any]], cursor: Any, generation: int, encode: Callable[[Any], bytes]
) -> tuple[list[Mapping[str, Any]], str | None] | None:
    """The page that `cursor` asks for and the cursor of the next one; None when the cursor is none of ours."""
    start = _find_start(cursor, generation, len(entries))
    if start is None:
        return None
    shown: list[Mapping[str, Any]] = []
    size = 0
    for entry in entries[start:]:
        size += len(encode(entry))
        if shown and size > PAGE_BYTES:
            return shown, f"{generation}.{start + len(shown)}"
        shown.append(entry)
    return shown, None


def _find_start(cursor: Any, generation: int, length: int) -> int | None:
    """Where a page begins. Null is not a cursor."""
    if cursor is None:
        return 0
    if not isinstance(cursor, str):
        return None
    made, _, position = cursor.partition(".")
    if made != str(generation) or not (position.isascii() and position.isdigit() and len(position) < 10):
        return None
    return int(position) if int(position) <= length else None
