"""The services that a test scripts."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.model.errors import Failure
from plugbay.model.operations import AskUser, CompleteChat, FetchUrl, RecallMemory
from plugbay.sdk import Plugin, testing
from plugbay.sdk.testing import CallFailed
from plugbay.sdk.testing.services import FakeFiles, FakeHttp, FakeLlm, FakeMemory, FakePeople, LogLine
from tests.support.authored import everything
from tests.support.requirements import requirement


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


def test_memory_and_models_answer_what_the_test_says() -> None:
    plugin, _ = everything()
    with testing.host(plugin, "nexo") as host:
        host.memory.put("ada", "Tea is a drink.", tags=["tea"])
        host.memory.put("ben", "Tea is a herb.")
        host.llm.script([["Good ", "day."], "Bye."])
        assert host.call("remember", {"query": "tea"}) == ["Tea is a drink."]
        assert [host.call("say"), host.call("say")] == ["Good |day.", "Bye."]
        assert (host.memory.asked[0].query, host.llm.asked[0].provider) == ("tea", "toy")
        with pytest.raises(CallFailed, match="is scripted"):
            host.call("say")


def test_storage_is_a_dict_of_the_test() -> None:
    plugin, _ = everything()
    with testing.host(plugin, "kaged") as host:
        host.storage["old"] = 1
        assert host.call("keep", {"key": "new", "value": [2]}) == ["new", "old"]
        assert host.storage == {"old": 1, "new": [2]}
        assert "kept new" in host.stderr


def test_what_is_published_is_kept_and_what_would_be_dropped_is_told() -> None:
    plugin, _ = everything()
    with testing.host(plugin, "kaged") as host:
        host.call("tell", {"topic": "low"})
        assert [(event.topic, event.payload) for event in host.published] == [("plugin.pantry.low", {"what": "tea"})]
    with testing.host(plugin, "nexo") as host:
        host.call("tell", {"topic": "plugin.inbound.note"})
        host.call("tell", {"topic": "somewhere.else"})
        assert [event.topic for event in host.published] == ["plugin.inbound.note"]
        assert [refusal.code for refusal in host.refused] == ["capability_not_allowed"]


def test_files_servers_actions_and_logs_of_ainb() -> None:
    plugin, _ = everything()
    with testing.host(plugin, "ainb") as host:
        host.http.answer("https://shop.example/tea", {"price": 3})
        host.files["/srv/recipes/tea.md"] = "green"
        host.files["/srv/recipes/deep/er.md"] = "x"
        host.actions["lamp.switch"] = lambda data: data + b"!"
        assert host.call("page", {"url": "https://shop.example/tea"}) == {"price": 3}
        assert host.call("recipe", {"path": "/srv/recipes/tea.md"}) == ["green", ["deep", "tea.md"]]
        assert host.call("switch") == "on!"
        assert host.logs == [LogLine("warn", "switching", {"lamp": 1})]


@pytest.mark.parametrize(
    ("contract", "tool", "input", "missing"),
    [
        ("nexo", "remember", {"query": "tea"}, "memory.recall"),
        ("nexo", "say", {}, "llm.complete"),
        ("ainb", "page", {"url": "https://shop.example/"}, "network"),
        ("ainb", "recipe", {"path": "/srv/recipes/tea.md"}, "read_paths"),
    ],
)
def test_what_is_not_granted_is_refused(contract: str, tool: str, input: Any, missing: str) -> None:
    plugin, _ = everything()
    with testing.host(plugin, contract, grants=[]) as host:
        with pytest.raises(CallFailed):
            host.call(tool, input)
        assert [refusal.detail["capability"] for refusal in host.refused][:1] == [missing]


def test_a_server_that_is_not_granted_is_not_reached_though_it_would_answer() -> None:
    plugin, _ = everything()
    with testing.host(plugin, "ainb") as host:
        host.http.answer("https://elsewhere.example/", {})
        with pytest.raises(CallFailed, match="capability denied: network"):
            host.call("page", {"url": "https://elsewhere.example/"})
        assert "not granted for elsewhere.example, port 443" in host.refused[0].message
        assert host.http.asked == []


def test_a_service_that_its_contract_lacks_is_refused_by_the_sdk() -> None:
    plugin, _ = everything()
    with testing.host(plugin, "rune") as host, pytest.raises(CallFailed, match="memory"):
        host.call("remember", {"query": "tea"})


def test_what_the_test_itself_gets_wrong_is_told_and_breaks_nothing() -> None:
    plugin, _ = everything()
    with testing.host(plugin, "ainb") as host:
        host.actions["lamp.switch"] = lambda data: 1 // 0
        with pytest.raises(CallFailed):
            host.call("switch")
        assert "ZeroDivisionError" in host.refused[0].message
        assert host.call("count", {"items": []}) == 0


@requirement("mcp:sdk-testing")
def test_people_and_models_of_mcp_answer_what_the_test_says() -> None:
    plugin = Plugin("p")

    @plugin.tool()
    def greet(ctx: Any) -> str:
        name = (ctx.ask("Who?") or {}).get("name", "nobody")
        ctx.log.info("greeting", who=name)
        ctx.progress("greeting")
        said = ctx.llm.complete("", "any", [{"role": "user", "content": f"Greet {name}."}]).content
        return str(said)

    with testing.host(plugin, "mcp") as host:
        host.people.script([{"name": "Ada"}, None])
        host.llm.script(["Hello, Ada!", lambda op: f"to {op.messages[0]['content']}"])
        assert host.call("greet") == "Hello, Ada!"
        assert host.progress == [{"progress": 1, "message": "greeting"}]
        assert host.call("greet") == "to Greet nobody."
        assert [line.message for line in host.logs] == ["greeting", "greeting"]
    with testing.host(plugin, "mcp", grants=["sampling"]) as host, pytest.raises(CallFailed, match="elicitation"):
        host.call("greet")
