"""Which address of a server of language models is valid; no message repeats a password in it."""

from __future__ import annotations

import pytest

from plugbay.host.services.llm.settings import base_url_problem


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/v1",
        "http://localhost:11434/v1/",
        "http://[::1]:8080",
    ],
)
def test_a_base_url_that_can_be_used(url: str) -> None:
    assert base_url_problem(url) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.example.com",
        "ftp://example.com",
        "https://",
        "http://x:y/",
        "http://exa mple.com/\n",
        "http://[::1",
        "https://user:hunter2@example.com",
        "https://example.com/?key=hunter2",
        "https://example.com/#hunter2",
    ],
)
def test_a_base_url_that_cannot_be_used_is_refused_and_not_repeated(url: str) -> None:
    problem = base_url_problem(url)
    assert problem is not None
    assert "hunter2" not in problem
