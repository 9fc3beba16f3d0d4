"""`FrameRedactor`: redacts frames before they are shown or recorded, and reports where.

Redacts the secrets of the plugin in every encoding (`redaction`), values under keys that name a secret, and texts that
look like a key or a token. Prefers to redact too much: redactions are marked, so a replay knows what is missing. Does
not find a secret that a plugin splits over several frames.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from plugbay.host.recording.redaction import HIDDEN, Redactor

NAMES = (
    "authorization",
    "token",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "secrets",
    "apikey",
    "privatekey",
    "secretkey",
    "accesskey",
    "signingkey",
    "credential",
    "credentials",
    "cookie",
)
"""Endings of keys with a secret value, in lower case and without punctuation: `X-Api-Key`, `delegation_token`."""

SECRET_SETTINGS = frozenset({"systemconfig"})
"""Keys with the object of a plugin's secrets whose names do not say so: in kaged's `initialize`."""

NOT_SECRET = frozenset({"progresstoken"})
"""Keys with such an ending that are no secret: the number to which MCP's progress notifications refer."""

SCHEMA_KEYS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keys of JSON Schema whose children are names of properties, not values."""

_SIGNS = re.compile(r"[^a-z0-9]")


class _Shape(NamedTuple):
    """A pattern of a secret. Matched only if one of the `signs` occurs, because frames may have megabytes."""

    signs: tuple[str, ...]
    pattern: re.Pattern[str]


def _shape(pattern: str, *signs: str) -> _Shape:
    return _Shape(signs, re.compile(pattern))


_NAMES = r"(?:authorization|token|password|passwd|secret|api[_-]?key)"
_QUOTED = rf"""(?i)({_NAMES}\\*["']\s*:\s*\\*["'])[^"'\\\s]{{3,}}"""

SHAPES = (
    _shape(r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/-]{16,}=*", "earer", "EARER"),
    _shape(r"(?i)(\bbasic\s+)(?=[A-Za-z0-9+/]*[0-9+/=])[A-Za-z0-9+/]{12,}={0,2}", "asic", "ASIC"),
    _shape(r"()\bsk-[A-Za-z0-9_-]{16,}", "sk-"),
    _shape(r"()\bgh[pousr]_[A-Za-z0-9]{20,}", "gh"),
    _shape(r"()\bgithub_pat_\w{20,}", "github_pat_"),
    _shape(r"()\bglpat-[\w-]{16,}", "glpat-"),
    _shape(r"()\bxox[abeprs]-[\w-]{10,}", "xox"),
    _shape(r"()\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", "AKIA", "ASIA"),
    _shape(r"()\bAIza[\w-]{30,}", "AIza"),
    _shape(r"()\b(?:hf|npm)_[A-Za-z0-9]{20,}", "hf_", "npm_"),
    _shape(r"()(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+", "eyJ"),
    _shape(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----)[\s\S]*?(?=-----END|\Z)", "PRIVATE KEY-----"),
    _shape(r"(://[^\s/:@]*:)[^\s/@]+(?=@)", "://"),
    _shape(rf"(?i)({_NAMES}=)[^\s&\"']{{6,}}", "d=", "n=", "t=", "y=", "D=", "N=", "T=", "Y="),
    _shape(_QUOTED, "oken", "assw", "ecret", "ey", "uthor", "OKEN", "ASSW", "ECRET", "EY", "UTHOR"),
)
"""The first group of each pattern is kept, to show what was redacted after it. None backtracks far, so a frame of
megabytes takes milliseconds."""


def names_a_secret(key: str) -> bool:
    """Whether the value under this key is a secret."""
    plain = _SIGNS.sub("", key.lower())
    return (plain.endswith(NAMES) and plain not in NOT_SECRET) or plain in SECRET_SETTINGS


def pointer(*steps: str | int) -> str:
    """A JSON pointer."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


class FrameRedactor:
    """Redacts the frames of one plugin, with the secrets that its `Redactor` knows at that time."""

    __slots__ = ("_redactor",)

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def redact_frame(self, value: Any) -> tuple[Any, tuple[str, ...]]:
        """A redacted JSON value, and JSON pointers to the redactions."""
        found: list[str] = []
        return self._redact(value, (), found), tuple(found)

    def redact_line(self, line: bytes) -> bytes:
        """Redact bytes that are not JSON: a line of stderr, or noise on stdout."""
        known = self._redactor.redact_line(line)
        text = known.decode("utf-8", "surrogateescape")
        redacted = _redact_shapes(text)
        return known if redacted is text else redacted.encode("utf-8", "surrogateescape")

    def _redact(self, value: Any, path: tuple[str | int, ...], found: list[str]) -> Any:
        if isinstance(value, dict):
            return self._object(value, path, found)
        if isinstance(value, list):
            return self._list(value, path, found)
        return self._leaf(value, path, found)

    def _object(self, value: dict[str, Any], path: tuple[str | int, ...], found: list[str]) -> dict[str, Any]:
        declares = bool(path) and path[-1] in SCHEMA_KEYS
        named = value.get("name", value.get("key"))
        labelled = isinstance(named, str) and names_a_secret(named)
        shown_items: dict[str, Any] = {}
        for key, item in value.items():
            shown = self._key(key, path, found)
            where = (*path, shown)
            secret = names_a_secret(key) and not (declares and isinstance(item, dict))
            if secret or (labelled and key == "value"):
                shown_items[shown] = self._hide(item, where, found)
            else:
                shown_items[shown] = self._redact(item, where, found)
        return shown_items

    def _list(self, value: list[Any], path: tuple[str | int, ...], found: list[str]) -> list[Any]:
        """Headers come as pairs, and command lines as an option followed by its value."""
        redacted: list[Any] = []
        for at, item in enumerate(value):
            before = value[at - 1] if at else None
            option = isinstance(before, str) and (before.startswith("-") or len(value) == 2) and names_a_secret(before)
            redacted.append((self._hide if option else self._redact)(item, (*path, at), found))
        return redacted

    def _leaf(self, value: Any, path: tuple[str | int, ...], found: list[str]) -> Any:
        if value is None or isinstance(value, bool):
            return value
        redacted = self._redactor.redact_value(value)
        if isinstance(redacted, str):
            redacted = _redact_shapes(redacted)
        if redacted is not value and redacted != value:
            found.append(pointer(*path))
        return redacted

    def _hide(self, value: Any, path: tuple[str | int, ...], found: list[str]) -> Any:
        """Redact every string and number in a value; empty strings, booleans and null give nothing away."""
        if isinstance(value, dict):
            shown = {self._key(key, path, found): item for key, item in value.items()}
            return {key: self._hide(item, (*path, key), found) for key, item in shown.items()}
        if isinstance(value, list):
            return [self._hide(item, (*path, at), found) for at, item in enumerate(value)]
        if value is None or value == "" or isinstance(value, bool):
            return value
        found.append(pointer(*path))
        return HIDDEN

    def _key(self, key: str, path: tuple[str | int, ...], found: list[str]) -> str:
        shown = _redact_shapes(self._redactor.redact_value(key))
        if shown != key:
            found.append(pointer(*path, shown))
        return shown


def _redact_shapes(text: str) -> str:
    """The text without anything that looks like a secret; the same object if nothing does."""
    redacted = text
    for signs, pattern in SHAPES:
        if any(sign in redacted for sign in signs):
            redacted = pattern.sub(rf"\g<1>{HIDDEN}", redacted)
    return text if redacted == text else redacted
