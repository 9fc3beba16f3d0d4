"""`Redactor`: takes out of a frame what nobody who reads a recording may know, and says where it was.

Three ways, all of them before anything is shown or written: the plugin's own secrets in every disguise (`discretion`),
whatever stands under a key that names a secret, and texts that look like a key or a token. Rather too much than too
little: what is taken out is marked, so whoever replays knows what is missing. A secret that a plugin cuts in pieces,
one for each frame, is not found.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from plugbay.host.recording.redaction import HIDDEN, Discretion

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
"""How keys end that stand before a secret, in small letters and without signs: `X-Api-Key`, `delegation_token`."""

SECRET_SETTINGS = frozenset({"systemconfig"})
"""What contracts call the object with a plugin's secrets when its name does not say so: kaged's `initialize`."""

NOT_SECRET = frozenset({"progresstoken"})
"""Keys that end like those and are no secret: the number by which MCP tells whose progress it is."""

SCHEMA_KEYS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keys of JSON Schema below which names are declared, not used."""

_SIGNS = re.compile(r"[^a-z0-9]")


class _Shape(NamedTuple):
    """What a secret looks like. Searched for only where one of the `signs` is: frames may have megabytes."""

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
"""The first group of each pattern stays: it says what was taken out behind it. None looks far back, so a frame of
megabytes takes milliseconds."""


def names_a_secret(key: str) -> bool:
    """Whether what stands under this key is nobody's business."""
    plain = _SIGNS.sub("", key.lower())
    return (plain.endswith(NAMES) and plain not in NOT_SECRET) or plain in SECRET_SETTINGS


def pointer(*steps: str | int) -> str:
    """A JSON pointer."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


class Redactor:
    """Redacts for one plugin; learns of new secrets when its `Discretion` does."""

    __slots__ = ("_discretion",)

    def __init__(self, discretion: Discretion) -> None:
        self._discretion = discretion

    def value(self, said: Any) -> tuple[Any, tuple[str, ...]]:
        """A JSON value as it may be shown, and pointers to what in it is not as it was said."""
        found: list[str] = []
        return self._told(said, (), found), tuple(found)

    def line(self, said: bytes) -> bytes:
        """Bytes that are no JSON: a line on stderr, or what a plugin should not have written."""
        told = self._discretion.line(said)
        text = told.decode("utf-8", "surrogateescape")
        shaped = _shapeless(text)
        return told if shaped is text else shaped.encode("utf-8", "surrogateescape")

    def _told(self, said: Any, path: tuple[str | int, ...], found: list[str]) -> Any:
        if isinstance(said, dict):
            return self._object(said, path, found)
        if isinstance(said, list):
            return self._list(said, path, found)
        return self._leaf(said, path, found)

    def _object(self, said: dict[str, Any], path: tuple[str | int, ...], found: list[str]) -> dict[str, Any]:
        declares = bool(path) and path[-1] in SCHEMA_KEYS
        named = said.get("name", said.get("key"))
        labelled = isinstance(named, str) and names_a_secret(named)
        told: dict[str, Any] = {}
        for key, item in said.items():
            shown = self._key(key, path, found)
            where = (*path, shown)
            secret = names_a_secret(key) and not (declares and isinstance(item, dict))
            if secret or (labelled and key == "value"):
                told[shown] = self._hidden(item, where, found)
            else:
                told[shown] = self._told(item, where, found)
        return told

    def _list(self, said: list[Any], path: tuple[str | int, ...], found: list[str]) -> list[Any]:
        """Headers come as pairs, and command lines as an option with what follows it."""
        told: list[Any] = []
        for at, item in enumerate(said):
            before = said[at - 1] if at else None
            option = isinstance(before, str) and (before.startswith("-") or len(said) == 2) and names_a_secret(before)
            told.append((self._hidden if option else self._told)(item, (*path, at), found))
        return told

    def _leaf(self, said: Any, path: tuple[str | int, ...], found: list[str]) -> Any:
        if said is None or isinstance(said, bool):
            return said
        told = self._discretion.value(said)
        if isinstance(told, str):
            told = _shapeless(told)
        if told is not said and told != said:
            found.append(pointer(*path))
        return told

    def _hidden(self, said: Any, path: tuple[str | int, ...], found: list[str]) -> Any:
        """Every text and number in it, whatever it is; what is empty, true, false or null tells nothing."""
        if isinstance(said, dict):
            shown = {self._key(key, path, found): item for key, item in said.items()}
            return {key: self._hidden(item, (*path, key), found) for key, item in shown.items()}
        if isinstance(said, list):
            return [self._hidden(item, (*path, at), found) for at, item in enumerate(said)]
        if said is None or said == "" or isinstance(said, bool):
            return said
        found.append(pointer(*path))
        return HIDDEN

    def _key(self, key: str, path: tuple[str | int, ...], found: list[str]) -> str:
        shown = _shapeless(self._discretion.value(key))
        if shown != key:
            found.append(pointer(*path, shown))
        return shown


def _shapeless(text: str) -> str:
    """The text without what looks like a secret; the same text when nothing does."""
    told = text
    for signs, pattern in SHAPES:
        if any(sign in told for sign in signs):
            told = pattern.sub(rf"\g<1>{HIDDEN}", told)
    return text if told == text else told
