"""`[mcp.NAME]` of plugbay.toml: MCP servers that the operator declares there instead of in a folder.

    [mcp.files]
    command = ["npx", "-y", "@modelcontextprotocol/server-filesystem", "/srv/data"]
    env = { LOG_LEVEL = "info", API_KEY = "secret://api_key", REGION = "${AWS_REGION}" }
    inherit_env = ["HOME"]
    cwd = "/srv"
    era = "handshake"

    [mcp.notes]
    bundle = "bundles/notes"

Owns the fields. Everything else that an operator says about a plugin is in `[plugins.NAME]`, as for every other.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from plugbay.model.ids import id_problem


class ServerConfig(BaseModel):
    """One server: a command, or the folder of an unpacked bundle."""

    model_config = ConfigDict(extra="forbid")

    command: Annotated[list[str], Field(min_length=1)] | None = None
    bundle: str | None = None
    env: dict[str, str] = {}
    inherit_env: list[str] = []
    """Variables of the host's that the server gets beside the usual ones."""
    cwd: str | None = None
    era: Literal["handshake", "modern"] | None = None
    """How it is greeted; where it is not named, what came out the last time."""

    @field_validator("env", "inherit_env")
    @classmethod
    def _names(cls, value: dict[str, str] | list[str]) -> dict[str, str] | list[str]:
        for name in value:
            if not name or "=" in name or "\0" in name:
                raise ValueError(f"{name!r} cannot be the name of a variable")
        return value

    @model_validator(mode="after")
    def _one(self) -> ServerConfig:
        if (self.command is None) == (self.bundle is None):
            raise ValueError("needs either a command, or the folder of a bundle")
        if self.bundle is not None and (self.env or self.cwd):
            raise ValueError("a bundle says itself what its environment and its folder are")
        return self


def names_problem(names: object) -> str | None:
    """Why one of these cannot be the name of a server."""
    found = [(name, id_problem(name)) for name in names] if isinstance(names, dict) else []
    return next((f"{name!r} {why}" for name, why in found if why is not None), None)
