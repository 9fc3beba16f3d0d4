"""Settings of a server of language models: defaults, and the check of its address. Imports nothing of the network."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

CHAT_SECONDS = 60.0
STREAM_SECONDS = 300.0
"""From sending to the last byte, as in nexo. A stream may take longer because its reader sees progress."""

IDLE_SECONDS = 60.0
"""The longest pause inside a stream. Any byte ends a pause: servers send comments while a model is thinking."""

TokenLimitField = Literal["max_tokens", "max_completion_tokens"]
"""Newer models of OpenAI require the second; hardly any other server knows it."""


def base_url_problem(url: str) -> str | None:
    """Why a base URL is invalid; None when it is valid. Never quotes it: it may hold a password."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises when it is not a number
    except ValueError:
        return "must be a URL like https://api.example.com/v1"
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii() or not url.isprintable():
        return "must be a URL like https://api.example.com/v1"
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        return "must not contain a user, password, query or fragment; put the key into api_key_env"
    return None
