"""The operator's side of one language model provider in plugbay.toml. Unknown keys are errors.

    kind = "openai"
    base_url = "https://api.example.com/v1"
    api_key_env = "EXAMPLE_API_KEY"
    models = ["large", "small"]
    timeout = 60.0

Owns these fields. The key itself is never in the file: it names a variable of the host's environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from plugbay.host.services.llm.endpoint import base_url_problem
from plugbay.host.services.llm.openai import (
    CHAT_SECONDS,
    IDLE_SECONDS,
    STREAM_SECONDS,
    OpenAiProvider,
    TokenLimitField,
)
from plugbay.model.errors import ConfigInvalid, Problem

Seconds = Annotated[float, Field(gt=0, le=3600, strict=False)]


class ProviderConfig(BaseModel):
    """One provider. Without `api_key_env` it is asked without a key, as a server on the same machine may be."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["openai"]
    base_url: str
    api_key_env: str | None = None
    models: list[str] | None = None
    """The models that may be asked for; whatever the server has, when this is absent."""
    timeout: Seconds = CHAT_SECONDS
    stream_timeout: Seconds = STREAM_SECONDS
    idle_timeout: Seconds = IDLE_SECONDS
    max_retries: Annotated[int, Field(ge=0, le=10)] = 2
    token_limit_field: TokenLimitField = "max_tokens"

    @field_validator("base_url")
    @classmethod
    def _base_url(cls, value: str) -> str:
        problem = base_url_problem(value)
        if problem is not None:
            raise ValueError(problem)
        return value

    def build(self, name: str, environ: Mapping[str, str], source: str = "plugbay.toml") -> OpenAiProvider:
        """The provider; raises `ConfigInvalid` when its key is not to be had."""
        return OpenAiProvider(
            name,
            self.base_url,
            self._key(name, environ, source),
            models=self.models or (),
            timeout=self.timeout,
            stream_timeout=self.stream_timeout,
            idle_timeout=self.idle_timeout,
            max_retries=self.max_retries,
            token_limit_field=self.token_limit_field,
        )

    def _key(self, name: str, environ: Mapping[str, str], source: str) -> str | None:
        if self.api_key_env is None:
            return None
        key = environ.get(self.api_key_env, "").strip()
        if key and key.isascii() and key.isprintable():
            return key
        wrong = "is not printable ASCII, as a key has to be" if key else "is not set, or empty"
        message = f"the environment variable {self.api_key_env} {wrong}"
        raise ConfigInvalid(source, [Problem("unusable_key", f"llm.providers.{name}.api_key_env", message)])
