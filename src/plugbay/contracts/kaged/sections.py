"""The shape of a kaged manifest: every field, its type, its bounds and its default.

Owns the shape of each section. Values keep the type they are written with: a number is not text and a boolean is no
number. Which values make sense together is said in `rules` and `knobs`; a key that is not listed is warned about there.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from plugbay.contracts.kaged.messages import SHUTDOWN_SECONDS

NAME = r"^[a-z][a-z0-9-]*$"
"""The name of a plugin."""


def _quoted(value: Any) -> Any:
    """YAML makes a number of `1.10` and of `8080`; what was written cannot be told from it any more."""
    if isinstance(value, bool | int | float):
        raise PydanticCustomError("text_type", "must be text: put it in quotes")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("number_type", "must be a number")
    return value


def _scalar(value: Any) -> Any:
    if not isinstance(value, str | bool | int | float):
        raise PydanticCustomError("scalar_type", "must be text, a number or a boolean")
    return value


Text = Annotated[str, BeforeValidator(_quoted)]
Words = Annotated[Text, Field(min_length=1)]
Number = Annotated[Any, BeforeValidator(_number)]
"""An integer stays one, because the field it is for may want one."""
Scalar = Annotated[Any, BeforeValidator(_scalar)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="ignore", defer_build=True)  # built by the first manifest, not by each start


class Tool(_Section):
    """One tool; on the wire its plugin's name comes before its own."""

    name: Words
    description: Text
    parameters_schema: dict[str, Any]


class KnobEntry(_Section):
    """One control, with what all the types of knobs may say; which type may say what is in `knobs`."""

    type: Literal["range", "int_range", "enum", "boolean", "text", "multiline", "model_alias", "path"]
    label: Words
    binds_to: Text
    description: Text = ""
    default: Any = None
    min: Number = None
    max: Number = None
    step: Number = None
    values: Annotated[list[Scalar], Field(min_length=1)] | None = None
    labels: dict[str, Text] | None = None
    max_length: Annotated[int, Field(ge=1)] | None = None
    prefixes: Annotated[list[Words], Field(min_length=1)] | None = None


class Manifest(_Section):
    """The whole file."""

    name: Annotated[Text, Field(min_length=1, max_length=64, pattern=NAME)]
    version: Words
    kaged_api: Annotated[int, Field(gt=0)]
    description: Annotated[Text, Field(min_length=1, max_length=200)]
    author: Text | None = None
    license: Text | None = None
    homepage: Text | None = None
    command: Annotated[list[Text], Field(min_length=1)]
    env: dict[str, Text] = {}
    capabilities: list[Text] = []
    methods: list[Text] = []
    notifications: list[Text] = []
    config_schema: dict[str, Any] | None = None
    system_config_schema: dict[str, Any] | None = None
    hooks: list[Literal["on_session_start", "on_session_idle", "pre_compact", "post_compact"]] = []
    tools: list[Tool] = []
    roles: list[Literal["observer", "compactor"]] | None = None
    """None: observer when there are hooks."""
    knobs: dict[str, KnobEntry] = {}
    shutdown_timeout_sec: Annotated[int, Field(ge=1, le=30)] = SHUTDOWN_SECONDS
    health_interval_sec: Annotated[int, Field(ge=5, le=300)] = 30
    hook_timeout_sec: Annotated[int, Field(ge=1, le=60)] = 10
