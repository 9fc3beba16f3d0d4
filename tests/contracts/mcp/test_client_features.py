"""What a server asks: written by one end, read by the other, answered and understood."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.mcp import client_features
from plugbay.model.errors import Failure
from plugbay.model.operations import AskUser, CompleteChat, ListRoots
from tests.support.requirements import requirement

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
IMAGE = {"type": "image", "data": "aa==", "mimeType": "image/png"}


@requirement("mcp:wire-sampling", "mcp:wire-elicitation", "mcp:wire-roots")
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize(
    "op",
    [
        ListRoots(),
        AskUser("who?", FORM),
        AskUser("go there", None, "https://example.com"),
        CompleteChat("", "m", [{"role": "user", "content": "hi"}], max_tokens=9, temperature=0.1, system_prompt="s"),
        CompleteChat("", "", [{"role": "user", "content": IMAGE}, {"role": "assistant", "content": [IMAGE, IMAGE]}]),
    ],
)
def test_a_question_is_read_as_it_was_written(op: Any, modern: bool) -> None:
    method, params = client_features.write_request(op, "fresh", modern=modern)
    assert client_features.read_request(method, params) == op


@requirement("mcp:wire-elicitation")
def test_only_the_handshake_era_numbers_the_pages_people_are_sent_to() -> None:
    op = AskUser("go", None, "https://example.com")
    page = {"mode": "url", "message": "go", "url": "https://example.com"}
    assert client_features.write_request(op, "x1", modern=False) == (
        "elicitation/create",
        {**page, "elicitationId": "x1"},
    )
    assert client_features.write_request(op, "x1", modern=True) == ("elicitation/create", page)


@requirement("mcp:wire-elicitation")
def test_a_form_is_one_without_saying_so() -> None:
    assert client_features.read_request("elicitation/create", {"message": "m", "requestedSchema": FORM}) == AskUser(
        "m", FORM
    )
    said = {"mode": "form", "message": "m", "requestedSchema": FORM}
    assert client_features.read_request("elicitation/create", said) == AskUser("m", FORM)
    assert client_features.write_request(AskUser("m"), "", modern=True)[1]["requestedSchema"] == {
        "type": "object",
        "properties": {},
    }


@requirement("mcp:wire-sampling")
def test_the_request_of_a_hosted_server_and_its_answer_go_on_as_they_came() -> None:
    parts = [{"type": "text", "text": "a", "annotations": {"priority": 1}}, {"type": "text", "text": "b"}]
    params = {"messages": [{"role": "user", "content": parts}], "maxTokens": 5, "stopSequences": ["."]}
    op = client_features.read_request("sampling/createMessage", {**params, "_meta": {"progressToken": 1}, "task": {}})
    assert client_features.write_request(op, "", modern=False) == ("sampling/createMessage", params)
    said = {"role": "assistant", "content": parts, "model": "m", "stopReason": "endTurn"}
    assert client_features.build_result(op, client_features.read_result(op, said)) == said
    assert isinstance(client_features.read_result(op, {"content": parts}), str)


@requirement("mcp:wire-sampling")
def test_texts_in_several_parts_are_one_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    op = client_features.read_request(
        "sampling/createMessage", {"messages": [{"role": "user", "content": parts}], "maxTokens": 5}
    )
    assert isinstance(op, CompleteChat)
    assert (op.messages, op.max_tokens) == ([{"role": "user", "content": "a\nb"}], 5)


@requirement("mcp:wire-sampling")
@pytest.mark.parametrize(
    ("preferences", "model"),
    [
        (None, ""),
        ({}, ""),
        ({"hints": [{"name": "a"}, {"name": "b"}]}, "a"),
        ({"hints": [{}, {"name": "b"}]}, "b"),
        ({"hints": "x"}, ""),
        ({"hints": [5]}, ""),
    ],
)
def test_the_first_model_that_is_named_is_wished_for(preferences: Any, model: str) -> None:
    params = {"messages": [{"role": "user", "content": "x"}], "modelPreferences": preferences}
    op = client_features.read_request("sampling/createMessage", params)
    assert isinstance(op, CompleteChat) and op.model == model


@requirement("mcp:wire-invalid-params")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("sampling/createMessage", {}),
        ("sampling/createMessage", {"messages": []}),
        ("sampling/createMessage", {"messages": [5]}),
        ("sampling/createMessage", {"messages": [{"role": "system", "content": "x"}]}),
        ("sampling/createMessage", {"messages": [{"role": [], "content": "x"}]}),
        ("elicitation/create", {}),
        ("elicitation/create", {"message": "m"}),
        ("elicitation/create", {"message": "m", "requestedSchema": 5}),
        ("elicitation/create", {"message": "m", "mode": "url"}),
        ("elicitation/create", {"message": "m", "mode": "url", "url": ""}),
        ("elicitation/create", {"message": "m", "mode": "voice", "requestedSchema": FORM}),
    ],
)
def test_a_question_that_cannot_be_put_is_named(method: str, params: dict[str, Any]) -> None:
    assert isinstance(client_features.read_request(method, params), str)


def test_what_is_no_question_is_none() -> None:
    assert client_features.read_request("tools/call", {}) is None


@requirement("mcp:wire-client-capabilities")
@pytest.mark.parametrize(
    ("op", "capabilities", "missing"),
    [
        (ListRoots(), {}, {"roots": {}}),
        (ListRoots(), {"roots": {}}, None),
        (CompleteChat("", "", []), {"roots": {}}, {"sampling": {}}),
        (CompleteChat("", "", []), {"sampling": {}}, None),
        (CompleteChat("", "", []), {"sampling": None}, {"sampling": {}}),
        (AskUser("m"), {}, {"elicitation": {}}),
        (AskUser("m"), {"elicitation": {}}, None),
        (AskUser("m"), {"elicitation": {"form": {}}}, None),
        (AskUser("m"), {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        (AskUser("m", None, "u"), {"elicitation": {}}, {"elicitation": {"url": {}}}),
        (AskUser("m", None, "u"), {"elicitation": {"form": {}, "url": {}}}, None),
    ],
)
def test_a_client_is_asked_only_what_it_can_be_asked(op: Any, capabilities: Any, missing: Any) -> None:
    assert client_features.find_missing(op, capabilities) == missing


# Answers.


@requirement("mcp:wire-sampling")
@pytest.mark.parametrize(("ours", "theirs"), [("stop", "endTurn"), ("length", "maxTokens"), ("odd", "odd")])
def test_what_a_model_said_comes_back(ours: str, theirs: str) -> None:
    op = CompleteChat("", "wish", [])
    value = {"content": "hello", "finish_reason": ours, "usage": {"prompt_tokens": 1}, "tool_calls": []}
    result = client_features.build_result(op, value)
    text = {"type": "text", "text": "hello"}
    assert result == {"role": "assistant", "content": text, "model": "wish", "stopReason": theirs}
    assert client_features.read_result(op, result) == {
        "content": "hello",
        "finish_reason": ours,
        "usage": None,
        "tool_calls": [],
        "model": "wish",
    }


@pytest.mark.parametrize(
    ("content", "said"), [(None, {"type": "text", "text": ""}), (IMAGE, IMAGE), ([IMAGE], [IMAGE])]
)
def test_content_that_is_no_text_stays_what_it_is(content: Any, said: Any) -> None:
    result = client_features.build_result(CompleteChat("", "", []), {"content": content, "model": "m"})
    assert isinstance(result, dict) and (result["content"], result["model"]) == (said, "m")


@requirement("mcp:wire-elicitation")
@pytest.mark.parametrize("answer", [{"action": "accept", "content": {"a": 1}}, {"action": "decline"}])
def test_what_a_person_said_comes_back(answer: dict[str, Any]) -> None:
    op = AskUser("m", FORM)
    assert client_features.read_result(op, client_features.build_result(op, answer)) == answer


@requirement("mcp:wire-roots")
@pytest.mark.parametrize("roots", [[], [{"uri": "file:///a", "name": "a"}]])
def test_roots_come_back(roots: list[Any]) -> None:
    assert client_features.read_result(ListRoots(), client_features.build_result(ListRoots(), roots)) == roots
    assert client_features.build_result(ListRoots(), None) == {"roots": []}


@pytest.mark.parametrize("op", [AskUser("m"), CompleteChat("", "", [])])
def test_an_answer_of_ours_that_is_no_object_is_not_sent(op: Any) -> None:
    assert isinstance(client_features.build_result(op, "yes"), Failure)


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (ListRoots(), None),
        (ListRoots(), {}),
        (ListRoots(), {"roots": 5}),
        (AskUser("m"), []),
        (AskUser("m"), {"action": "maybe"}),
        (AskUser("m"), {"action": []}),
        (CompleteChat("", "", []), "hi"),
    ],
)
def test_an_answer_that_is_none_is_named(op: Any, said: Any) -> None:
    assert isinstance(client_features.read_result(op, said), str)


def test_only_a_person_can_be_said_not_to_answer() -> None:
    assert client_features.build_refusal(AskUser("m")) == {"action": "cancel"}
    assert client_features.build_refusal(ListRoots()) is None
    assert client_features.build_refusal(CompleteChat("", "", [])) is None
