"""What an operator set for the plugin: its configuration, and its secrets, which never print.

Owns the two mappings that handlers see. Refuses to know how settings arrive and which of them are right.
"""

from __future__ import annotations

from _collections_abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MASK = "***"
"""What is shown of every secret, however long it is."""


class Config(Mapping[str, "Any"]):
    """Settings by name, to be read."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown()})"

    def _shown(self) -> dict[str, Any]:
        return self._values


class Secrets(Config):
    """Settings that are seen one at a time and by name only: printed, logged or formatted, they are masked."""

    __slots__ = ()

    def _shown(self) -> dict[str, Any]:
        return dict.fromkeys(self._values, MASK)


class Settings:
    """Both, for everybody who shares a conversation; empty until the host has said them."""

    __slots__ = ("config", "secrets")

    def __init__(self) -> None:
        self.take({}, {})

    def take(self, config: Mapping[str, Any], secrets: Mapping[str, Any]) -> None:
        self.config = Config(config)
        self.secrets = Secrets(secrets)
