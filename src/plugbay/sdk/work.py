"""What a compactor and a harness are asked to do, as an author reads it.

Owns the names. Refuses to know how it arrived: a conversation that came as a file in the scratch folder reads as one
that came with the request.
"""

from __future__ import annotations

from plugbay.model.values import Value
from plugbay.sdk.services.artifacts import ArtifactInvalid, read_artifact
from plugbay.wire.strict_json import Malformed, stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

RESUME = "resume"


class Compaction(Value):
    """How short a conversation has to become, what has to stay, and which conversation it is.

    `target` has `max_input_tokens` and `target_model`, `policy` has `retain_system` and `retain_open_tasks`; both are
    as the host said them.
    """

    __slots__ = ("chain_id", "id", "pinned", "policy", "target", "token_estimate")

    def __init__(
        self,
        id: str,
        chain_id: str | None,
        target: dict[str, Any],
        policy: dict[str, Any],
        pinned: list[Any],
        token_estimate: int | None,
    ) -> None:
        self.id = id
        """The same in every try to make this conversation shorter."""
        self.chain_id = chain_id
        self.target = target
        self.policy = policy
        self.pinned = pinned
        self.token_estimate = token_estimate

    @property
    def max_tokens(self) -> int | None:
        """How long the result may be; the host counts."""
        most = self.target.get("max_input_tokens")
        return most if isinstance(most, int) else None


def read_compaction(request: Mapping[str, Any], scratch: str | None) -> tuple[list[Any], Compaction]:
    """The blocks of a conversation, and what to do with them; raises `ArtifactInvalid`."""
    source = request["source"]
    projection = source.get("projection")
    said = projection if isinstance(projection, dict) else {}
    content = _file(said, scratch) if said.get("transport") == "artifact" else said
    estimate = said.get("token_estimate")
    compaction = Compaction(
        request["compaction_id"],
        source.get("chain_id"),
        request["target"],
        request["policy"],
        _list(content, "pinned_items"),
        estimate if type(estimate) is int else None,
    )
    return _list(content, "blocks"), compaction


def _file(projection: Mapping[str, Any], scratch: str | None) -> dict[str, Any]:
    ref = projection.get("artifact")
    data = read_artifact(scratch, ref if isinstance(ref, dict) else {})
    try:
        content = stdlib_codec().decode(data)
    except Malformed as error:
        raise ArtifactInvalid(f"the conversation cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise ArtifactInvalid("the conversation cannot be read: it is no object")
    return content


def _list(content: Mapping[str, Any], name: str) -> list[Any]:
    items = content.get(name, [])
    return items if isinstance(items, list) else []


class Run(Value):
    """What a harness is asked to do, or to go on with.

    `target` has `session_id`, `chain_id` and `execution_id`, `trigger` what set it off, `policy` its limits, all as the
    host said them. `checkpoint` is the data that was kept last; None at the start.
    """

    __slots__ = ("checkpoint", "mode", "policy", "target", "trigger")

    def __init__(self, request: Mapping[str, Any]) -> None:
        kept = request.get("checkpoint")
        self.mode: str = request["mode"]
        self.target: dict[str, Any] = request["target"]
        self.trigger: dict[str, Any] = request["trigger"]
        self.policy: dict[str, Any] = request["policy"]
        self.checkpoint: Any = kept.get("data") if isinstance(kept, dict) else None

    @property
    def resumed(self) -> bool:
        """Whether it goes on after a break."""
        return self.mode == RESUME

    @property
    def input(self) -> list[Any]:
        """What was said to set it off, as items of content."""
        return _list(self.trigger, "input")

    @property
    def text(self) -> str:
        """The texts of the input."""
        return "\n".join(
            item["text"] for item in self.input if isinstance(item, dict) and isinstance(item.get("text"), str)
        )
