"""The `ctx` of an invocation: who it is for, how long it may take, and what it may use.

Everything comes with the request, so that one process can work for many: settings and secrets are those of this call,
the gateway has the rights of this call, the scratch folder is gone after it. Knows no wire.
"""

from __future__ import annotations

from time import monotonic, time

from plugbay.sdk.context import Context
from plugbay.sdk.io.detect import VAI
from plugbay.sdk.services.host_client import Unconnected
from plugbay.sdk.settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Any

    from plugbay.sdk.services.cancellation import Cancellation
    from plugbay.sdk.services.gateway import Gateway
    from plugbay.sdk.work import Compaction

HIDDEN = "gateway"
"""The part of the context that a handler never sees as it is: the token is in it."""


class Setting:
    """What the host sent along with one request."""

    __slots__ = (
        "_gateway",
        "attempt",
        "context",
        "deadline",
        "delivery_id",
        "scratch",
        "settings",
        "tool_execution_id",
    )

    def __init__(self, said: Mapping[str, Any]) -> None:
        context = _object(said, "context")
        self._gateway = _object(context, HIDDEN)
        self.context = {name: value for name, value in context.items() if name != HIDDEN}
        self.deadline = _deadline(self.context.get("deadline_at"))
        """When it has to be over, by the monotonic clock."""
        self.scratch = text(self.context, "scratch_dir")
        self.settings = Settings()
        self.settings.take(_object(said, "config"), _object(said, "secrets"))
        self.tool_execution_id = text(said, "tool_execution_id")
        self.delivery_id = text(said, "delivery_id")
        self.attempt: int | None = said.get("attempt")

    def remaining(self) -> float | None:
        return None if self.deadline is None else max(self.deadline - monotonic(), 0.0)

    def gateway(self, awaitable: bool) -> Gateway | None:
        """The client of this call, if it was given a token."""
        base_url, token = text(self._gateway, "base_url"), text(self._gateway, "delegation_token")
        if not (base_url and token and token.isascii() and token.isprintable()):
            return None  # an error about a token that is no header would show it
        from plugbay.sdk.services.gateway import AwaitableGateway, Gateway

        scopes = self._gateway.get("scopes")
        make = AwaitableGateway if awaitable else Gateway
        return make(
            base_url,
            token,
            tuple(scopes) if isinstance(scopes, list) else (),
            text(self.context, "invocation_id") or "",
            self.remaining,
        )


class InvocationContext(Context):
    """`ctx` under vai."""

    __slots__ = (
        "_gateway",
        "_keep",
        "_send",
        "_setting",
        "attempt",
        "chain_id",
        "compaction",
        "deadline_at",
        "delivery_id",
        "invocation_id",
        "org_id",
        "run_id",
        "tool_execution_id",
        "trace_id",
    )

    def __init__(
        self,
        plugin_id: str,
        setting: Setting,
        cancellation: Cancellation,
        *,
        send: Callable[[Any], None],
        keep: Callable[[Any], dict[str, Any]],
        awaitable: bool,
        compaction: Compaction | None = None,
    ) -> None:
        """`keep` takes the data of a checkpoint, and returns it as a host is told."""
        said = setting.context
        super().__init__(Unconnected(VAI), plugin_id, said, setting.settings, cancellation)
        self._setting = setting
        self._send = send
        self._keep = keep
        self._gateway = setting.gateway(awaitable)
        self.invocation_id = text(said, "invocation_id")
        self.trace_id = text(said, "trace_id")
        self.org_id = text(said, "org_id")
        self.chain_id = text(said, "chain_id")
        self.run_id = text(said, "run_id")
        self.deadline_at = text(said, "deadline_at")
        self.tool_execution_id = setting.tool_execution_id
        self.delivery_id = setting.delivery_id
        self.attempt = setting.attempt
        self.compaction = compaction

    def progress(self, message: str = "", **more: Any) -> None:
        self._send({"type": "progress", "message": message, **more})

    def checkpoint(self, data: Any) -> None:
        self._send({"type": "checkpoint", "checkpoint": self._keep(data)})

    @property
    def scratch(self) -> Path | None:
        if self._setting.scratch is None:
            return None
        from pathlib import Path

        return Path(self._setting.scratch)

    @property
    def gateway(self) -> Gateway | None:
        return self._gateway


def text(said: Mapping[str, Any], name: str) -> str | None:
    value = said.get(name)
    return value if isinstance(value, str) and value else None


def _object(said: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = said.get(name)
    return value if isinstance(value, dict) else {}


def _deadline(said: Any) -> float | None:
    """A time of the wall clock as one of the monotonic clock, which nobody sets; None for what is no time."""
    if not isinstance(said, str):
        return None
    from _datetime import datetime  # type: ignore[import-not-found]  # `datetime` is 3 ms of start-up

    try:
        at = datetime.fromisoformat(said)
    except ValueError:
        return None
    return None if at.tzinfo is None else float(monotonic() + at.timestamp() - time())
