"""`Discretion`: takes a plugin's secrets out of what the plugin says, before the host repeats it to anybody.

Plugins print their keys: on stderr, in errors, as noise. What reaches failures, records, events and logs passes through
here. Refuses to know where a text comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from plugbay.model.errors import Failure

SHORTEST = 6
"""Characters of a secret that is looked for; a shorter one is part of too many words."""

HIDDEN = "***"
"""Shorter than any secret that is looked for, so none is found in it."""


class Discretion:
    """Knows the secrets of one plugin and tells none."""

    __slots__ = ("_secrets",)

    def __init__(self, secrets: Mapping[str, Any] | None) -> None:
        # The longest first: one may be the beginning of another.
        found = {text for text in _texts(secrets) if len(text) >= SHORTEST}
        self._secrets = sorted(found, key=len, reverse=True)

    def text(self, said: str) -> str:
        for secret in self._secrets:
            said = said.replace(secret, HIDDEN)
        return said

    def value(self, said: Any) -> Any:
        """The same for every text in a JSON value."""
        if not self._secrets:
            return said
        if isinstance(said, str):
            return self.text(said)
        if isinstance(said, Mapping):
            return {self.value(key): self.value(item) for key, item in said.items()}
        return [self.value(item) for item in said] if isinstance(said, list | tuple) else said

    def failure(self, failure: Failure) -> Failure:
        if not self._secrets:
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
