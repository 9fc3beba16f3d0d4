"""`Discretion`: takes a plugin's secrets out of what the plugin says, before the host repeats it to anybody.

Plugins print their keys: on stderr, in errors, as noise, in results. What reaches failures, records, events, logs and
callers passes through here. A secret may become known while the plugin runs, and is remembered for as long as it does.
Refuses to know where a text comes from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from plugbay.host.disguises import forms
from plugbay.model.errors import Failure

SHORTEST = 6
"""Characters of a secret that is looked for; a shorter one is part of too many words."""

PASSING = 32
"""Short-lived secrets that are remembered, such as the tokens of calls: the last ones, which may still be of use."""

HIDDEN = "***"
"""Shorter than any secret that is looked for, so none is found in it."""


class Discretion:
    """Knows the secrets of one plugin and tells none."""

    __slots__ = ("_kept", "_looked_for", "_passing", "_secrets")

    def __init__(self, secrets: Mapping[str, Any] | None = None) -> None:
        self._secrets: set[str] = set()
        self._kept: set[str] = set()
        """Every form of these."""
        self._passing: deque[set[str]] = deque(maxlen=PASSING)
        """The forms of each of the short-lived ones."""
        self._looked_for: list[str] = []
        self.learn(secrets)

    def learn(self, secrets: Any, passing: Iterable[str] = ()) -> None:
        """From now on, tell none of these texts either; the `passing` ones are forgotten after many others."""
        fresh = set(_long_enough(_texts(secrets))) - self._secrets
        seen = [forms(text) for text in _long_enough(passing)]
        if not fresh and not seen:
            return
        self._secrets |= fresh
        self._kept.update(*map(forms, fresh))
        self._passing.extend(seen)
        # The longest first: one may be the beginning of another.
        self._looked_for = sorted(self._kept.union(*self._passing), key=len, reverse=True)

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
        for form in self._looked_for:
            if form in said:
                said = said.replace(form, HIDDEN)
        return said

    def value(self, said: Any) -> Any:
        """The same for every text in a JSON value."""
        if not self._looked_for:
            return said
        if isinstance(said, str):
            return self.text(said)
        if isinstance(said, Mapping):
            return {self.value(key): self.value(item) for key, item in said.items()}
        return [self.value(item) for item in said] if isinstance(said, list | tuple) else said

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
            detail=self.value(failure.detail),
        )


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
