"""The services that a test scripts."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.model.errors import Failure
from plugbay.model.operations import AskUser, CompleteChat, FetchUrl, RecallMemory
from plugbay.sdk.testing.services import FakeFiles, FakeHttp, FakeLlm, FakeMemory, FakePeople


def test_memory_is_searched_by_words_within_one_agent() -> None:
    memory = FakeMemory()
    for text in ("Green tea", "Black coffee", "Black tea"):
        memory.put("ada", text)

    def found(query: str, limit: int = 10) -> list[str]:
        return [entry["content"] for entry in memory.recall(RecallMemory("ada", query, limit))]

    assert found("TEA") == ["Green tea", "Black tea"]
    assert found("") == ["Green tea", "Black coffee", "Black tea"]
    assert found("black", 1) == ["Black coffee"]
    assert memory.recall(RecallMemory("ben", "tea")) == []


@pytest.mark.parametrize(
    ("line", "content", "pieces"),
    [
        ("hi", "hi", ["hi"]),
        (["h", "i"], "hi", ["h", "i"]),
        ({"content": "hi", "finish_reason": "length"}, "hi", ["hi"]),
        (lambda op: op.model, "m", ["m"]),
    ],
)
def test_a_model_says_its_line_whole_or_in_pieces(line: Any, content: str, pieces: list[str]) -> None:
    llm, heard = FakeLlm(), list[Any]()
    llm.script([line, line])
    assert llm.complete(CompleteChat("p", "m", []), heard.append)["content"] == content
    assert llm.complete(CompleteChat("p", "m", [], stream=True), heard.append)["content"] is None
    assert heard == pieces


def test_a_model_may_fail() -> None:
    llm = FakeLlm()
    llm.script([Failure("overloaded", "busy")])
    assert llm.complete(CompleteChat("p", "m", []), print) == Failure("overloaded", "busy")


def test_a_server_answers_at_its_url_only() -> None:
    http = FakeHttp()
    http.answer("https://a/", "text", status=404, headers={"X-A": "1"})
    assert http.fetch(FetchUrl("https://a/")) == {"status": 404, "headers": [["X-A", "1"]], "body": b"text"}
    unknown = http.fetch(FetchUrl("https://b/"))
    assert isinstance(unknown, Failure) and "host.http.answer('https://b/'" in unknown.message
    assert [op.url for op in http.asked] == ["https://a/", "https://b/"]


def test_folders_are_there_because_files_are_in_them() -> None:
    files = FakeFiles({"/a/b/c": "12", "/a/d": b"345"})
    assert files.entries("/a") == [
        {"name": "b", "is_dir": True, "size": 0},
        {"name": "d", "is_dir": False, "size": 3},
    ]
    assert files.read("/a/b/c") == b"12"
    assert isinstance(files.read("/a/b"), Failure) and isinstance(files.entries("/x"), Failure)


def test_people_answer_as_the_script_says_and_not_at_all_without_one() -> None:
    people, question = FakePeople(), AskUser("Who?")
    people.script([{"name": "Ada"}, None])
    assert people.answer(question) == {"action": "accept", "content": {"name": "Ada"}}
    assert people.answer(question) == {"action": "decline"}
    assert isinstance(people.answer(question), Failure)
    assert people.asked == [question] * 3
