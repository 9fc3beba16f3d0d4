"""Shell completion of ids: asks the running server, or the one that the line names, for records of the wanted kind.

Completion never disturbs: it has `SECONDS`, prints nothing when no server answers, and offers only words that no shell
interprets. Names come from other people, and the zsh script of Typer evaluates the offered words.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from plugbay.cli import remote
from plugbay.host.config.time_factor import time_factor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plugbay.cli.remote import ServerClient

SECONDS = 1.0
"""For all requests together, on a machine without `PLUGBAY_TIME_FACTOR`."""
MOST = 100
"""Offered names."""
PAGE = 200
"""Records that are asked for: the most that the API puts on one page."""
MAX_ABOUT = 60
"""Characters of a description."""

_SAFE = re.compile(r"[A-Za-z0-9._/@+-]{1,255}")
_UNSAFE_TEXT = re.compile(r"[^\w.,/+-]+")

Completer = Callable[[typer.Context, str], list[tuple[str, str]]]


class Ids(NamedTuple):
    """A list of the API that has the ids of a kind of record."""

    path: str
    """Names in braces are the values of other parameters of the line."""
    items: str = "items"
    id: str = "id"
    about: str = ""
    """The field that describes a record."""


PLUGINS = Ids("/api/v1/plugins", "plugins", about="state")
PACKAGES = Ids("/v1/plugin-packages", about="package_id")


def ids_of(*lists: Ids, needs: Mapping[str, Ids] | None = None) -> Completer:
    """A completer for an argument or option; `needs` has the lists of the parameters in their paths."""

    def complete(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        try:
            with _time_limit():
                client = remote.find(ctx.params.get("server"), ctx.params.get("token_file"), quiet=True)
                return offer(_read(client, lists, ctx.params, needs or {}), incomplete)
        except Exception:  # a traceback would stand in the middle of the line that is typed
            return []

    return complete


def offer(found: Iterable[tuple[Any, Any]], incomplete: str) -> list[tuple[str, str]]:
    """The first names that begin with `incomplete`, with their descriptions."""
    names: dict[str, str] = {}
    for name, about in found:
        if isinstance(name, str) and name.startswith(incomplete) and _SAFE.fullmatch(name):
            text = about if isinstance(about, str) else ""
            names.setdefault(name, _UNSAFE_TEXT.sub(" ", text)[:MAX_ABOUT].strip())
    return list(names.items())[:MOST]


def _read(
    client: ServerClient, lists: Sequence[Ids], given: Mapping[str, Any], needs: Mapping[str, Ids]
) -> Iterator[tuple[Any, Any]]:
    for each in lists:
        path = each.path
        for name in re.findall(r"{(\w+)}", path):
            value = given.get(name.removesuffix("_id")) or _only(client, needs[name])
            path = path.replace("{" + name + "}", value)
        query = {"limit": PAGE} if each.items == "items" else {}
        try:
            records = client.get(path, wait=_seconds(), **query)[each.items]
        except remote.RemoteRefused:  # the key may see one list and not another
            continue
        yield from ((record.get(each.id), record.get(each.about)) for record in records)


def _only(client: ServerClient, ids: Ids) -> str:
    """The id of the only record of a list: most keys see one org."""
    (record,) = client.get(ids.path, wait=_seconds(), limit=2)[ids.items]
    return str(record[ids.id])


def _seconds() -> float:
    return SECONDS * time_factor()


@contextmanager
def _time_limit() -> Iterator[None]:
    """Raise `TimeoutError` in the block after `_seconds()`: a socket's own limit starts anew with every byte."""

    def end(number: int, frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _seconds())
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def join_bash_words(environ: MutableMapping[str, str]) -> None:
    """Undo the split of words at `:` and `=`: readline breaks `http://127.0.0.1:8787` into five words."""
    words, at = environ.get("COMP_WORDS", "").split("\n"), environ.get("COMP_CWORD", "")
    if not at.isdigit():
        return
    joined: list[str] = []
    current, glued = int(at), False
    for number, word in enumerate(words):
        is_break = word != "" and not word.strip(":=")
        if joined and (is_break or glued):
            joined[-1] += word
            current -= number <= int(at)
        else:
            joined.append(word)
        glued = is_break
    environ["COMP_WORDS"], environ["COMP_CWORD"] = "\n".join(joined), str(current)


def command_word(environ: Mapping[str, str] = os.environ) -> str:
    """The command of the line that a shell wants completed; empty while it is typed, and outside of completion."""
    if "_PLUGBAY_COMPLETE" not in environ:
        return ""
    typed = environ.get("COMP_WORDS") or environ.get("_TYPER_COMPLETE_ARGS", "")
    words = typed.split()
    if "COMP_CWORD" in environ:
        ended = environ["COMP_CWORD"].isdigit() and int(environ["COMP_CWORD"]) > 1
    else:
        ended = len(words) > 2 or typed.endswith((" ", "\n"))
    return words[1] if ended and len(words) > 1 else ""
