"""What is said over HTTP about conversations: its bounds."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from plugbay.server.api.conversation_models import ChainIn, CompactionIn, ExecutionIn, ExecutionOut, RunIn, SessionIn


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (SessionIn, {"org_id": "a/b"}),
        (SessionIn, {"metadata": {str(number): 1 for number in range(65)}}),
        (ChainIn, {}),
        (ChainIn, {"session_id": "s", "defaults": {"colour": "red"}}),
        (RunIn, {"temperature": 3}),
        (RunIn, {"limits": {"max_turns": 0}}),
        (RunIn, {"limits": {"timeout_ms": 10**9}}),
        (RunIn, {"tools": [""]}),
        (CompactionIn, {"chain_id": "c", "target": {"max_input_tokens": 0}}),
        (ExecutionIn, {"binding_id": "b", "policy": {"max_child_runs": -1}}),
    ],
)
def test_what_is_out_of_bounds_is_refused(model: Any, body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(body)


def test_statuses_are_listed_in_the_document() -> None:
    schema = ExecutionOut.model_json_schema()
    assert schema["properties"]["mode"]["enum"] == ["start", "resume"]
