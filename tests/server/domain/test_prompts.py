"""What a model is asked about a chain."""

from __future__ import annotations

from typing import Any

from plugbay.server.domain import prompts
from plugbay.server.domain.blocks import text_block

CALL = {"kind": "tool_call", "content": [], "tool_call_id": "c1", "name": "t", "input": {"a": 1}}
ASKED = {"id": "c1", "name": "t", "arguments": {"a": 1}}


def result(content: list[dict[str, Any]], structured: Any = None) -> dict[str, Any]:
    return {"kind": "tool_result", "content": content, "tool_call_id": "c1", "structured_output": structured}


def test_calls_belong_to_the_response_before_them() -> None:
    said = prompts.messages(
        [text_block("input", "go"), text_block("response", "so"), CALL, result([{"type": "text", "text": "42"}])]
    )
    assert said == [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "so", "tool_calls": [ASKED]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ]


def test_a_call_without_words_is_a_message_of_its_own() -> None:
    said = prompts.messages([text_block("input", "go"), CALL])
    assert said[1] == {"role": "assistant", "content": None, "tool_calls": [ASKED]}


def test_a_result_without_words_is_its_structured_output() -> None:
    assert prompts.messages([result([], {"n": 1})])[0]["content"] == '{"n":1}'
    assert prompts.messages([result([])])[0]["content"] == ""


def test_system_blocks_are_said_beside_the_messages_and_thinking_not_at_all() -> None:
    blocks = [text_block("system", "be kind"), text_block("thinking", "hmm"), text_block("system", "be brief")]
    assert prompts.system_prompt(blocks) == "be kind\n\nbe brief"
    assert prompts.messages(blocks) == []
    assert prompts.system_prompt([]) is None


def test_images_are_attached_and_everything_else_is_named() -> None:
    content = [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
        {"type": "image", "source": {"type": "asset", "asset_id": "a"}},
        {"type": "audio", "source": {"type": "url", "url": "https://example.com/a.mp3"}},
    ]
    [message] = prompts.messages([{"kind": "input", "content": content}])
    assert message["content"] == "look\n[image]\n[audio]"
    assert message["attachments"] == [
        {"kind": "image", "url": "https://example.com/a.png"},
        {"kind": "image", "mime_type": "image/png", "base64": "aGk="},
    ]


def test_a_reply_becomes_blocks() -> None:
    assert prompts.replied("so", [ASKED]) == [text_block("response", "so"), CALL]
    assert prompts.replied(None, []) == []


def test_a_tool_without_a_schema_takes_any_object() -> None:
    assert prompts.function("t", "does t", None) == {
        "name": "t",
        "description": "does t",
        "parameters": {"type": "object"},
    }
