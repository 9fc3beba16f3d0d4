"""A result of MCP as the value that made it."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.model.spec import Export
from plugbay.sdk.testing.called import called_value

TEXT = {"type": "text", "text": "hi"}
WRAPPED = {"type": "object", "properties": {"result": {}}, "required": ["result"]}


@pytest.mark.parametrize(
    ("result", "schema", "value"),
    [
        ({"content": [TEXT, TEXT]}, None, "hihi"),
        ({"content": []}, None, None),
        ({"content": [{"type": "image"}]}, None, [{"type": "image"}]),
        ({"content": [TEXT], "structuredContent": {"x": 1}}, None, {"x": 1}),
        ({"content": [TEXT], "structuredContent": {"result": [1]}}, None, [1]),
        ({"content": [TEXT], "structuredContent": {"result": [1]}}, WRAPPED, [1]),
        ({"content": [TEXT], "structuredContent": {"result": 1}}, {"type": "object"}, {"result": 1}),
    ],
)
def test_a_result_is_read_back(result: Any, schema: Any, value: Any) -> None:
    assert called_value(result, Export("tool", "t", output_schema=schema)) == value
