"""`Discretion`: takes a plugin's secrets out of what the plugin says, before the host repeats it to anybody.

Plugins print their keys: on stderr, in errors, as noise, in results. What reaches failures, records, events, logs and
callers passes through here. A secret may become known while the plugin runs, and is remembered for as long as it does.
Refuses to know where a text comes from.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from plugbay.model.errors import Failure

SHORTEST = 6
"""Characters of a secret that is looked for; a shorter one is part of too many words."""

PASSING = 32
"""Tokens that are remembered although they are dead: what was said while they lived may be told a moment later."""

BEGINNING = 8
"""Characters, or a third of it if that is more, by which a secret is known in a diagnosis: those quote what a plugin
said up to some length, and a secret that was cut short is still half a secret."""

DATA = "result"
"""The one detail of a failure that is no diagnosis: what the plugin left for whoever goes on."""

HIDDEN = "***"
"""Shorter than any secret that is looked for, so none is found in it."""


class Discretion:
    """Knows the secrets of one plugin and tells none."""

    __slots__ = ("_beginnings", "_kept", "_live", "_looked_for", "_passing", "_secrets")

    def __init__(self, secrets: Mapping[str, Any] | None = None) -> None:
        self._secrets: set[str] = set()
        self._kept: set[str] = set()
        """Every form of these."""
        self._live: dict[str, set[str]] = {}
        """The forms of each token that can be used."""
        self._passing: deque[set[str]] = deque(maxlen=PASSING)
        """The forms of each of those that no longer can."""
        self._looked_for: list[str] = []
        self._beginnings: set[str] = set()
        self.learn(secrets)

    def learn(self, secrets: Any, tokens: Iterable[str] = ()) -> None:
        """From now on, tell none of these texts either; the `tokens` until they are `dead`, and a while longer."""
        fresh = set(_long_enough(_texts(secrets))) - self._secrets
        live = {token: forms(token) for token in _long_enough(tokens)}
        if not fresh and not live:
            return
        self._secrets |= fresh
        self._kept.update(*map(forms, fresh))
        self._live |= live
        self._look()

    def dead(self, token: str) -> None:
        """This token opens nothing any more; it is forgotten after many others."""
        seen = self._live.pop(token, None)
        if seen is not None:
            self._passing.append(seen)
            self._look()

    def _look(self) -> None:
        # The longest first: one may be the beginning of another.
        self._looked_for = sorted(self._kept.union(*self._live.values(), *self._passing), key=len, reverse=True)
        self._beginnings = {form[: max(BEGINNING, len(form) // 3)] for form in self._looked_for}

    @property
    def knows_any(self) -> bool:
        """Whether there is anything to hide."""
        return bool(self._looked_for)

    def line(self, said: bytes) -> bytes:
        """A line of output as it may be kept: the same bytes when nothing in it is a secret."""
        if not self._looked_for:
            return said
        text = said.decode("utf-8", "surrogateescape")
        told = self.text(text)
        return said if told is text else told.encode("utf-8", "surrogateescape")

    def text(self, said: str) -> str:
        """A diagnosis without secrets, also without those of which only the beginning is there."""
        said = self._whole(said)
        for beginning in self._beginnings:
            at = said.find(beginning)
            while at >= 0:
                size = max(_shared(form, said[at : at + len(form)]) for form in self._looked_for)
                said = said[:at] + HIDDEN + said[at + size :]
                at = said.find(beginning, at)
        return said

    def value(self, said: Any) -> Any:
        """A JSON value without secrets, as keys, texts or numbers; nothing else in it is touched."""
        return _told(said, self._whole) if self._looked_for else said

    def _whole(self, said: str) -> str:
        for form in self._looked_for:
            if form in said:
                said = said.replace(form, HIDDEN)
        return said

    def failure(self, failure: Failure) -> Failure:
        if not self._looked_for:
            return failure
        return Failure(
            failure.code,
            self.text(failure.message),
            origin=failure.origin,
            plugin=failure.plugin,
            retryable=failure.retryable,
            retry_after_ms=failure.retry_after_ms,
            detail={
                key: _told(item, self._whole if key == DATA else self.text) for key, item in failure.detail.items()
            },
        )


def _shared(one: str, other: str) -> int:
    """How many characters two texts have in common before they differ."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _told(said: Any, hide: Callable[[str], str]) -> Any:
    """A JSON value, each text and number in it told as `hide` says."""
    if isinstance(said, str):
        return hide(said)
    if isinstance(said, Mapping):
        return {_told(key, hide): _told(item, hide) for key, item in said.items()}
    if type(said) in (int, float):
        return said if (told := hide(str(said))) == str(said) else told
    return [_told(item, hide) for item in said] if isinstance(said, list | tuple) else said


def _long_enough(texts: Iterable[str]) -> list[str]:
    return [text for text in texts if len(text) >= SHORTEST]


def _texts(value: Any) -> Iterator[str]:
    """Every text and number of a JSON value, as it would be printed."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
        yield from (line for line in value.splitlines() if line != value)
    elif type(value) in (int, float):
        yield str(value)


_ESCAPE = re.compile(r"\\u([0-9a-f]{4})")


def forms(secret: str) -> set[str]:
    """Every text in which this secret is still the same secret to whoever finds it."""
    return {secret, *_in_urls(secret), *_in_base64(secret), *_in_hex(secret), *_in_json(secret), *_in_reprs(secret)}


def _in_urls(secret: str) -> Iterator[str]:
    data = secret.encode("utf-8", "surrogatepass")
    for quoted in (quote(data, safe=""), quote(data), quote_plus(data)):
        yield quoted
        yield _lower_hex(quoted)


def _lower_hex(quoted: str) -> str:
    head, *rest = quoted.split("%")
    return head + "".join(f"%{piece[:2].lower()}{piece[2:]}" for piece in rest)


def _in_base64(secret: str) -> Iterator[str]:
    """The part that is the same whatever stands around the secret, as in `Basic base64(user:secret)`.

    Three bytes become four characters, so what stands before it shifts it by 0, 1 or 2 bytes. Characters that share
    bits with a neighbour, 2 or 3 at the front and one at the end, are left out; where the secret stands last, the one
    at the end and the padding belong to it.
    """
    data = secret.encode("utf-8", "surrogatepass")
    for shift, shared in ((0, 0), (1, 2), (2, 3)):
        shifted = bytes(shift) + data
        own = len(shifted) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            encoded = encode(shifted).decode()[shared:]
            yield from (encoded[: own - shared], encoded.rstrip("="), encoded)


def _in_hex(secret: str) -> Iterator[str]:
    digits = secret.encode("utf-8", "surrogatepass").hex()
    yield from (digits, digits.upper())


def _in_json(secret: str) -> Iterator[str]:
    """Some encoders escape slashes as well, and some write their escapes in capitals."""
    for escaped in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        capitals = _ESCAPE.sub(lambda found: f"\\u{found[1].upper()}", escaped)
        for form in (escaped, capitals):
            yield form
            yield form.replace("/", "\\/")


def _in_reprs(secret: str) -> Iterator[str]:
    """As Python shows a text, and bytes, in its exceptions."""
    yield repr(secret)[1:-1]
    yield repr(secret.encode("utf-8", "surrogatepass"))[2:-1]
