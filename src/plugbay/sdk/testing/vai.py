"""Requests to a plugin under vai: the context, settings and permissions that come with each.

Owns the body of a request, its scratch folder, and how a result is read. For tests only.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time

from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.model.operations import Compact, InvokeTool, RunHarness, RunHook
from plugbay.sdk.results import KINDS, RESULT, read_artifact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from plugbay.model.spec import Export
    from plugbay.sdk.testing.spec import OperatorSettings

IDS = ("org_id", "project_id", "session_id", "chain_id", "run_id")
"""What a caller may say about a call."""

ENOUGH_TOKENS = 100_000
"""How long a conversation may be unless a test says otherwise."""

NONE = "none"

_numbers = count(1)


class VaiRequest:
    """One request: who it is for, until when, with what. Use it as a context manager: its folder goes with it."""

    def __init__(self, export: Export, terms: OperatorSettings, about: Mapping[str, Any], seconds: float) -> None:
        self._export = export
        self._terms = terms
        self._about = dict(about)
        self._until = datetime.fromtimestamp(time() + seconds, UTC)
        self.number = next(_numbers)
        asked = export.facts.get("permissions") or {}
        self._permissions = {
            "network": asked.get("network", NONE) if "network" in terms.granted else NONE,
            "filesystem": self._granted("filesystem", asked.get("filesystem", NONE)),
        }
        self._slots = [slot for slot in asked.get("secret_slots", ()) if f"secret={slot}" in terms.granted]
        self._folder = (
            TemporaryDirectory(prefix="plugbay-scratch-") if self._permissions["filesystem"] != NONE else None
        )
        self.scratch = None if self._folder is None else str(Path(self._folder.name).resolve())

    def _granted(self, name: str, value: str) -> str:
        return value if f"{name}={value}" in self._terms.granted else NONE

    def __enter__(self) -> VaiRequest:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def tool(self, given: Any) -> InvokeTool:
        return InvokeTool(self._export.name, given, {**self._beside(), "tool_execution_id": f"toolx_{self.number}"})

    def hook(self, event: Mapping[str, Any]) -> RunHook:
        beside = {**self._beside(), "delivery_id": f"del_{self.number}", "attempt": self._about.get("attempt", 1)}
        return RunHook(self._export.name, dict(event), beside)

    def compactor(self, messages: Iterable[Mapping[str, Any]], pinned: Iterable[Any], most: int | None) -> Compact:
        blocks = [block(message) for message in messages]
        projection = {"transport": "inline", "blocks": blocks, "pinned_items": list(pinned)}
        request = {
            "compaction_id": f"cmp_{self.number}",
            "source": {"chain_id": self._about.get("chain_id"), "projection": projection},
            "target": {"max_input_tokens": most or ENOUGH_TOKENS},
            "policy": {},
        }
        return Compact(self._export.name, request, self._beside())

    def harness(self, text: str, trigger: Mapping[str, Any] | None, checkpoint: Any) -> RunHarness:
        said = {"type": "user_request", "input": [{"type": "text", "text": text}] if text else []}
        target = {"session_id": None, "chain_id": None, "execution_id": f"exec_{self.number}"}
        request = {"mode": "start", "target": target, "trigger": dict(trigger or said), "policy": {}}
        if checkpoint is not None:
            kept = {"kind": self._export.facts.get("fidelity", "checkpoint"), "data": checkpoint}
            request |= {"mode": "resume", "checkpoint": kept}
        return RunHarness(self._export.name, request, self._beside())

    def artifacts(self, result: Mapping[str, Any]) -> dict[str, bytes]:
        """The files that a harness left, by their paths; they are gone afterwards."""
        return {ref["path"]: read_artifact(self.scratch, ref) for ref in result.get("artifacts") or ()}

    def _beside(self) -> dict[str, Any]:
        context = {
            "invocation_id": f"inv_{self.number}",
            "trace_id": f"tr_{self.number}",
            "org_id": "default",
            **{name: self._about.get(name) for name in IDS if name != "org_id"},
            **({"org_id": self._about["org_id"]} if "org_id" in self._about else {}),
            "deadline_at": self._until.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "scratch_dir": self.scratch,
            "gateway": {"base_url": None, "delegation_token": None, "scopes": []},
            "permissions": self._permissions,
        }
        secrets = {name: self._terms.secrets[name] for name in self._slots if name in self._terms.secrets}
        return {"context": context, "config": self._terms.config, "secrets": secrets}


def block(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as a block of a conversation; a block as it is."""
    if "kind" in message:
        return dict(message)
    content = message.get("content", "")
    items = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {"kind": KINDS.get(str(message.get("role")), "input"), "content": items}


def tool_value(result: Mapping[str, Any], schema: Any) -> Any:
    """What a tool returned, which the contract has as content and structured output; `schema` is of what it returns."""
    content, output = result.get("content") or [], result.get("structured_output")
    text = "".join(str(item.get("text", "")) for item in content)
    if result.get("is_error"):
        raise CallFailed(Failure(Code.PLUGIN_ERROR, text, origin=Origin.PLUGIN))
    if output is None:
        return text if all(item.get("type") == "text" for item in content) and content else content or None
    kinds = (schema or {}).get("type", ())
    is_object = "object" in ([kinds] if isinstance(kinds, str) else kinds)
    return output[RESULT] if set(output) == {RESULT} and not is_object else output
