"""What plugbay.toml may say about a provider, and that its key comes from the environment."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from plugbay.host.config.llm import ProviderConfig
from plugbay.host.services.llm.chat import ChatRequest
from plugbay.model.errors import ConfigInvalid
from tests.support.loops import Run
from tests.support.openai_server import OpenAiServer, completion

LOCAL = {"kind": "openai", "base_url": "http://localhost:11434/v1"}
KEY = "sk-0123456789abcdef"


def config(**fields: Any) -> ProviderConfig:
    return ProviderConfig.model_validate({**LOCAL, **fields}, strict=True)


def test_the_least_that_can_be_said() -> None:
    provider = config().build("local", {})
    assert repr(provider) == "OpenAiProvider('local', 'http://localhost:11434/v1')"
    assert provider.models == ()


def test_all_that_can_be_said() -> None:
    whole = config(
        api_key_env="EXAMPLE_KEY",
        models=["large", "small"],
        timeout=5,
        stream_timeout=50.5,
        idle_timeout=3,
        max_retries=0,
        token_limit_field="max_completion_tokens",
    )
    assert whole.build("example", {"EXAMPLE_KEY": KEY}).models == ("large", "small")


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "anthropic"},
        {"base_url": "localhost"},
        {"base_url": "https://user:hunter2@localhost"},
        {"api_key": KEY},
        {"timeout": 0},
        {"timeout": 3601},
        {"max_retries": 11},
        {"models": "large"},
        {"token_limit_field": "tokens"},
    ],
)
def test_what_cannot_be_meant_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        config(**fields)
    assert len(caught.value.errors()) == 1


def test_the_key_is_read_from_the_environment_and_trimmed(run: Run) -> None:
    async def main() -> None:
        async with OpenAiServer(completion()) as server:
            provider = config(base_url=server.url, api_key_env="EXAMPLE_KEY").build("x", {"EXAMPLE_KEY": f" {KEY}\n"})
            await provider.chat(ChatRequest("m", [{"role": "user", "content": "hi"}]))
            assert server.seen[0].headers["authorization"] == f"Bearer {KEY}"
            await provider.close()

    run(main)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, "EXAMPLE_KEY is not set"),
        ({"EXAMPLE_KEY": ""}, "EXAMPLE_KEY is not set"),
        ({"EXAMPLE_KEY": f"{KEY}\u00e9"}, "EXAMPLE_KEY is not printable ASCII"),
        ({"EXAMPLE_KEY": f"{KEY}\nx"}, "EXAMPLE_KEY is not printable ASCII"),
    ],
)
def test_a_key_that_is_not_to_be_had_is_said_at_once_and_never_shown(environ: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        config(api_key_env="EXAMPLE_KEY").build("example", environ)
    (problem,) = caught.value.problems
    assert problem.path == "llm.providers.example.api_key_env"
    assert words in problem.message
    assert KEY not in str(caught.value)
