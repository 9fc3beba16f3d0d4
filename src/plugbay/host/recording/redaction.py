"""`Redactor` removes the secrets of a plugin from its output; `FrameRedactor` also redacts what looks like a secret.

Plugins print their keys on stderr, in errors, as noise and in results. All output that reaches failures, records,
events, logs and callers must pass through a `Redactor`, and every frame that is shown or recorded through a
`FrameRedactor`. Secrets may be added at run time and are kept as long as it runs.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

from plugbay.model.errors import Failure

SHORTEST = 6
"""Minimum length of a secret that is searched for; a shorter one is part of too many words."""

EXPIRED_TOKENS = 32
"""Expired tokens that are still redacted: output from their lifetime may be processed a moment later."""

PREFIX = 8
"""Characters, or a third of the secret if that is more, that are recognized as a truncated secret in a diagnosis: those
quote output up to some length, and a truncated secret is still half a secret."""

DATA = "result"
"""The one detail of a failure that is data of the plugin, not a diagnosis."""

HIDDEN = "***"
"""Shorter than any secret that is searched for, so none is found in it."""


class Redactor:
    """Redacts the secrets of one plugin."""

    __slots__ = ("_expired", "_live", "_patterns", "_permanent", "_prefixes", "_secrets")

    def __init__(self, secrets: Mapping[str, Any] | None = None) -> None:
        self._secrets: set[str] = set()
        self._permanent: set[str] = set()
        """Every encoding of the secrets."""
        self._live: dict[str, set[str]] = {}
        """The encodings of each valid token."""
        self._expired: deque[set[str]] = deque(maxlen=EXPIRED_TOKENS)
        """The encodings of recently expired tokens."""
        self._patterns: list[str] = []
        self._prefixes: dict[str, list[str]] = {}
        """The prefix of each pattern, and all patterns that begin with it."""
        self.learn(secrets)

    def learn(self, secrets: Any, tokens: Collection[str] = ()) -> None:
        """Redact these secrets too, for good; and the `tokens` until some time after they `expire`."""
        if not secrets and not tokens:
            return
        fresh = set(_long_enough(_texts(secrets))) - self._secrets
        live = {token: encodings(token) for token in _long_enough(tokens)}
        if not fresh and not live:
            return
        self._secrets |= fresh
        self._permanent.update(*map(encodings, fresh))
        self._live |= live
        self._compile()

    def expire(self, token: str) -> None:
        """Mark a token as no longer valid. It is forgotten after `EXPIRED_TOKENS` others."""
        seen = self._live.pop(token, None)
        if seen is not None:
            self._expired.append(seen)
            self._compile()

    def _compile(self) -> None:
        # Longest first: one may be a prefix of another.
        self._patterns = sorted(self._permanent.union(*self._live.values(), *self._expired), key=len, reverse=True)
        prefixes = {form[: max(PREFIX, len(form) // 3)] for form in self._patterns}
        self._prefixes = {prefix: [form for form in self._patterns if form.startswith(prefix)] for prefix in prefixes}

    @property
    def has_secrets(self) -> bool:
        """Whether there is anything to redact."""
        return bool(self._patterns)

    def redact_line(self, line: bytes) -> bytes:
        """A line of output without secrets; the same object if there are none in it."""
        if not self._patterns:
            return line
        text = line.decode("utf-8", "surrogateescape")
        redacted = self.redact_text(text)
        return line if redacted is text else redacted.encode("utf-8", "surrogateescape")

    def redact_lines(self, lines: list[bytes]) -> list[bytes]:
        """Lines of output without secrets. Looks for them in all lines at once: nearly always there is none."""
        if not self._patterns:
            return lines
        text = b"\n".join(lines).decode("utf-8", "surrogateescape")
        if not any(prefix in text for prefix in self._prefixes):
            return lines
        return list(map(self.redact_line, lines))

    def redact_text(self, text: str) -> str:
        """A diagnosis without secrets, truncated ones included."""
        text = self._redact_whole(text)
        for prefix, forms in self._prefixes.items():
            at = text.find(prefix)
            while at >= 0:
                size = max(_common_prefix(form, text[at : at + len(form)]) for form in forms)
                text = text[:at] + HIDDEN + text[at + size :]
                at = text.find(prefix, at)
        return text

    def redact_value(self, value: Any) -> Any:
        """A JSON value without secrets in its keys, strings and numbers; nothing else changes."""
        return _map_texts(value, self._redact_whole) if self._patterns else value

    def _redact_whole(self, text: str) -> str:
        for form in self._patterns:
            if form in text:
                text = text.replace(form, HIDDEN)
        return text

    def redact_failure(self, failure: Failure) -> Failure:
        if not self._patterns:
            return failure
        return Failure(
            failure.code,
            self.redact_text(failure.message),
            origin=failure.origin,
            plugin=failure.plugin,
            retryable=failure.retryable,
            retry_after_ms=failure.retry_after_ms,
            detail={
                key: _map_texts(item, self._redact_whole if key == DATA else self.redact_text)
                for key, item in failure.detail.items()
            },
        )


def _common_prefix(one: str, other: str) -> int:
    """The length of the common prefix of two texts."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _map_texts(value: Any, redact: Callable[[str], str]) -> Any:
    """A JSON value with `redact` applied to every key, string and number."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {_map_texts(key, redact): _map_texts(item, redact) for key, item in value.items()}
    if type(value) in (int, float):
        return value if (redacted := redact(str(value))) == str(value) else redacted
    return [_map_texts(item, redact) for item in value] if isinstance(value, list | tuple) else value


def _long_enough(texts: Iterable[str]) -> list[str]:
    return [text for text in texts if len(text) >= SHORTEST]


def _texts(value: Any) -> Iterator[str]:
    """Every string and number of a JSON value, as it would be printed."""
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


def encodings(secret: str) -> set[str]:
    """Every common encoding of a secret: as it is, in URLs, base64, hex, JSON and Python's `repr`."""
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
    """The part that does not depend on the text around the secret, as in `Basic base64(user:secret)`.

    Three bytes become four characters, so the text before the secret shifts it by 0, 1 or 2 bytes. Characters that
    share bits with a neighbour, 2 or 3 at the front and one at the end, are left out; if the secret comes last, the one
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
    """Some encoders also escape slashes, and some write hex escapes in capitals."""
    for escaped in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        capitals = _ESCAPE.sub(lambda found: f"\\u{found[1].upper()}", escaped)
        for form in (escaped, capitals):
            yield form
            yield form.replace("/", "\\/")


def _in_reprs(secret: str) -> Iterator[str]:
    """As Python shows strings and bytes in exceptions."""
    yield repr(secret)[1:-1]
    yield repr(secret.encode("utf-8", "surrogatepass"))[2:-1]


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
    """Redacts the frames of one plugin and reports where, with the secrets that its `Redactor` knows at that time.

    Redacts secrets in every encoding, values under keys that name a secret, and texts that look like a key or a token.
    Prefers to redact too much: redactions are marked, so a replay knows what is missing. Does not find a secret that a
    plugin splits over several frames.
    """

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
