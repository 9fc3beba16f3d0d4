"""Models, vectors, channels and hooks that plugins bring. Real children, both loops."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import plugbay
from plugbay import CallFailed, Code, Host
from plugbay.host.services.llm.chat import ChatRequest
from plugbay.host.services.vectors import VectorQuery, VectorRecord
from plugbay.model.errors import Failure
from plugbay.process.sandbox.policy import SandboxSettings
from plugbay.process.sandbox.users import uid_of
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import PATIENCE, until
from tests.support.requirements import requirement

REQUEST = ChatRequest("m", [{"role": "user", "content": "hi"}])

MODEL = """
def final(text, **more):
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    return {"content": {"type": "text", "text": text}, "usage": usage, "finish_reason": {"kind": "stop"}, **more}
def delta(m, **chunk):
    notify("llm.chat.delta", request_id=m["id"], chunk=chunk)
def llm_chat(m):
    p = m["params"]
    if not p["stream"]:
        reply(m, final(f"{p['provider']}/{p['model']}: {p['request']['messages'][0]['content']}"))
        return
    delta(m, type="text_delta", delta="Hel")
    delta(m, type="text_delta", delta="lo")
    delta(m, type="tool_call_start", id="t", name="look")
    delta(m, type="tool_call_args_delta", id="t", delta="{}")
    delta(m, type="tool_call_end", id="t")
    delta(m, type="usage", usage={"prompt_tokens": 3, "completion_tokens": 2})
    delta(m, type="end", finish_reason={"kind": "stop"})
    reply(m, final(""))
"""


def model(tmp_path: Path, body: str = MODEL, **options: Any) -> None:
    write_nexo_plugin(tmp_path, body=body, extends={"llm_providers": ["cohere"]}, **options)


@requirement("nexo:host-llm-chat")
def test_a_plugins_model_answers_through_the_registry(run: Run, tmp_path: Path) -> None:
    model(tmp_path)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert host.llm.names() == ["cohere"]
            reply = await host.llm.chat("cohere", REQUEST)
            assert (reply.text, reply.finish_reason) == ("cohere/m: hi", "stop")
            assert reply.usage.completion_tokens == 2

    run(main)


@requirement("nexo:host-llm-stream", "nexo:host-llm-chunks")
def test_every_type_of_chunk_arrives_and_the_stream_ends_once(run: Run, tmp_path: Path) -> None:
    model(tmp_path)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            chunks = [chunk async for chunk in host.llm.stream("cohere", REQUEST)]
            kinds = [chunk["type"] for chunk in chunks]
            assert kinds[:5] == [
                "text_delta",
                "text_delta",
                "tool_call_start",
                "tool_call_args_delta",
                "tool_call_end",
            ]
            assert kinds.count("end") == 1 and kinds[-1] == "end"
            assert "usage" in kinds

    run(main)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('reply(m, final("all"))', "all"),
        ('delta(m, type="end", finish_reason={"kind": "stop"}); reply(m, final("all"))', "all"),
        ('delta(m, type="text_delta", delta="a"); reply(m, final("all"))', "a"),
    ],
)
@requirement("nexo:host-llm-stream")
def test_a_model_that_answers_all_at_once_is_streamed_too(run: Run, tmp_path: Path, body: str, text: str) -> None:
    model(tmp_path, MODEL + f"\ndef llm_chat(m):\n    {body}\n")

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            chunks = [chunk async for chunk in host.llm.stream("cohere", REQUEST)]
            assert [chunk["type"] for chunk in chunks] == ["text_delta", "usage", "end"]
            assert chunks[0]["delta"] == text

    run(main)


@requirement("nexo:host-llm-usage")
def test_zeros_in_the_final_answer_do_not_undo_the_usage_of_a_chunk(run: Run, tmp_path: Path) -> None:
    said = 'delta(m, type="usage", usage={"prompt_tokens": 3, "completion_tokens": 2})'
    zeros = 'final("a", usage={"prompt_tokens": 0, "completion_tokens": 0})'
    final = "def final(text, usage):\n    return {'content': {'type': 'text', 'text': text}, 'usage': usage,"
    final += " 'finish_reason': {'kind': 'stop'}}\n"
    model(tmp_path, MODEL + f"\n{final}def llm_chat(m):\n    {said}; reply(m, {zeros})\n")

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            chunks = [chunk async for chunk in host.llm.stream("cohere", REQUEST)]
            used = [chunk["usage"]["completion_tokens"] for chunk in chunks if chunk["type"] == "usage"]
            assert used == [2]

    run(main)


def test_host_stream_gives_the_raw_pieces_and_the_final_answer(run: Run, tmp_path: Path) -> None:
    model(tmp_path)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            stream = host.stream("cohere", {"model": "m", "messages": [{"role": "user", "content": "hi"}]})
            text = "".join([chunk.get("delta", "") async for chunk in stream if chunk["type"] == "text_delta"])
            assert text == "Hello"
            assert stream.result["finish_reason"] == {"kind": "stop"}

    run(main)


@requirement("nexo:host-dies-mid-stream")
def test_a_child_that_dies_in_a_stream_fails_it_after_its_last_chunk(run: Run, tmp_path: Path) -> None:
    body = MODEL + '\ndef llm_chat(m):\n    delta(m, type="text_delta", delta="Hel")\n    os._exit(9)\n'
    model(tmp_path, body)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            seen = []
            with pytest.raises(CallFailed) as caught:
                async for chunk in host.llm.stream("cohere", REQUEST):
                    seen.append(chunk)
            assert seen == [{"type": "text_delta", "delta": "Hel"}]
            assert caught.value.code == Code.CRASHED

    run(main)


LLM_ERRORS = [
    (-33101, {}, Code.UNAVAILABLE, None),
    (-33102, {}, Code.PLUGIN_ERROR, None),
    (-33103, {"retry_after_secs": 30}, Code.OVERLOADED, 30_000),
    (-33104, {}, Code.NOT_FOUND, None),
    (-33105, {}, Code.INVALID_INPUT, None),
    (-32601, {}, Code.NOT_FOUND, None),
]


@requirement("nexo:host-llm-errors")
@pytest.mark.parametrize(("number", "data", "code", "retry_after"), LLM_ERRORS)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_of_a_model_are_typed_in_both_modes(
    run: Run, tmp_path: Path, number: int, data: dict[str, int], code: str, retry_after: int | None, stream: bool
) -> None:
    model(tmp_path, f"def llm_chat(m):\n    fail(m, {number}, 'no', **{data!r})\n")

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            with pytest.raises(CallFailed) as caught:
                if stream:
                    [chunk async for chunk in host.llm.stream("cohere", REQUEST)]
                else:
                    await host.llm.chat("cohere", REQUEST)
            failure = caught.value.failure
            assert (failure.code, failure.retry_after_ms) == (code, retry_after)
            assert failure.detail["plugin_code"] == number

    run(main)


VECTORS = """
stored = {}
def memory_vector_upsert(m):
    p = m["params"]
    stored.setdefault(p["collection"], {}).update({r["id"]: r for r in p["records"]})
    reply(m, {"count": len(p["records"])})
def memory_vector_search(m):
    p = m["params"]
    if p["collection"] not in stored:
        return fail(m, -33301, "no such collection", collection=p["collection"])
    if len(p["query"]["embedding"]) != 2:
        return fail(m, -33302, "dimension mismatch", expected=2, got=len(p["query"]["embedding"]))
    found = [{"id": r["id"], "content": r["content"], "score": 1.0, "metadata": r["metadata"]}
             for r in stored[p["collection"]].values()]
    reply(m, {"matches": found[:p["query"]["limit"]]})
def memory_vector_delete(m):
    p = m["params"]
    reply(m, {"count": sum(stored[p["collection"]].pop(id, None) is not None for id in p["ids"])})
"""


@requirement("nexo:host-vectors", "nexo:host-vector-errors")
def test_a_plugins_vector_backend_stores_finds_and_forgets(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, body=VECTORS, extends={"memory_backends": ["pinecone"]})

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert host.vectors.names() == ("embedded", "pinecone")
            store = host.vectors.get("pinecone")
            assert not isinstance(store, Failure)
            with pytest.raises(CallFailed) as missing:
                await store.search("kb", VectorQuery([0.1, 0.2]))
            assert (missing.value.code, missing.value.failure.detail["collection"]) == (Code.NOT_FOUND, "kb")
            assert await store.upsert("kb", [VectorRecord("1", "hello", [0.1, 0.2], {"s": "kb"})]) == 1
            (match,) = await store.search("kb", VectorQuery([0.1, 0.2], 5))
            assert (match.id, match.content, match.score, match.metadata) == ("1", "hello", 1.0, {"s": "kb"})
            with pytest.raises(CallFailed) as mismatch:
                await store.search("kb", VectorQuery([0.1]))
            detail = mismatch.value.failure.detail
            assert (mismatch.value.code, detail["expected"], detail["got"]) == (Code.INVALID_INPUT, 2, 1)
            assert await store.delete("kb", ["1", "2"]) == 1

    run(main)


@requirement("nexo:host-vector-recall")
def test_memory_recalls_through_a_plugins_vector_backend(run: Run, tmp_path: Path) -> None:
    body = VECTORS.replace("!= 2", "== 0")
    root = write_nexo_plugin(tmp_path, body=body, extends={"memory_backends": ["pinecone"]})
    config = tmp_path / "c.toml"
    config.write_text('[memory]\npath = "m.db"\nvectors = "pinecone"\n')

    async def main() -> None:
        async with Host.load(root, config=config) as host:
            assert host.memory is not None
            entry = await host.memory.remember("a", "completely different words")
            assert await host.memory.recall("a", "nothing in common") == [entry]
            assert await host.memory.recall("b", "nothing in common") == []

    run(main)


CHANNEL = """
started = []
def channel_start(m):
    started.append(m["params"]["instance"])
    reply(m, {"ok": True})
def channel_stop(m):
    started.clear()
    reply(m, {"ok": True})
def channel_send_outbound(m):
    p = m["params"]
    errors = {"nobody": (-33003, {"recipient": "nobody", "reason": "unknown"}), "art": (-33005, {"feature": "art"}),
              "busy": (-33004, {"retry_after_secs": 42}), "down": (-33001, {}), "auth": (-33002, {})}
    if p["msg"].get("to") in errors:
        code, data = errors[p["msg"]["to"]]
        return fail(m, code, "no", **data)
    reply(m, {"message_id": f"{started}/{p['kind']}/{p['msg']['kind']}", "sent_at_unix": 1741032000})
"""


@requirement("nexo:host-channels")
def test_a_channel_is_started_sent_to_and_stopped(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, body=CHANNEL, extends={"channels": ["slack"]}, channels=["slack"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert host.channels.kinds() == ["slack"]
            slack = host.channels["slack"]
            await slack.start("primary")
            sent = await slack.send({"kind": "text", "to": "U1", "body": "hi"})
            assert sent == {"message_id": "['primary']/slack/text", "sent_at_unix": 1741032000}
            with pytest.raises(TypeError, match=r"the channel slack is an object such as \{.*\}, not 'hi'"):
                await slack.send("hi")  # type: ignore[arg-type]
            await slack.stop()
            await slack.stop()
            with pytest.raises(CallFailed) as caught:
                host.channels["smoke"]
            assert caught.value.code == Code.NOT_FOUND

    run(main)


CHANNEL_ERRORS = [
    ("down", Code.UNAVAILABLE, {}),
    ("auth", Code.PLUGIN_ERROR, {}),
    ("nobody", Code.INVALID_INPUT, {"recipient": "nobody", "reason": "unknown"}),
    ("busy", Code.OVERLOADED, {"retry_after_secs": 42}),
    ("art", Code.NOT_FOUND, {"feature": "art"}),
]


@requirement("nexo:host-channel-errors")
@pytest.mark.parametrize(("to", "code", "data"), CHANNEL_ERRORS)
def test_errors_of_a_channel_are_typed_and_carry_their_data(
    run: Run, tmp_path: Path, to: str, code: str, data: dict[str, Any]
) -> None:
    write_nexo_plugin(tmp_path, body=CHANNEL, extends={"channels": ["slack"]}, channels=["slack"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            with pytest.raises(CallFailed) as caught:
                await host.channels["slack"].send({"kind": "text", "to": to, "body": "hi"})
            failure = caught.value.failure
            assert failure.code == code
            assert data.items() <= failure.detail.items()
            if to == "busy":
                assert (failure.retryable, failure.retry_after_ms) == (True, 42_000)

    run(main)


@requirement("nexo:host-channel-unsupported")
def test_a_channel_method_the_plugin_does_not_know_is_an_unsupported_feature(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, extends={"channels": ["slack"]}, channels=["slack"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            with pytest.raises(CallFailed) as caught:
                await host.channels["slack"].start()
            failure = caught.value.failure
            assert (failure.code, failure.detail["feature"]) == (Code.NOT_FOUND, "channel.start")
            assert (failure.detail["kind"], failure.detail["plugin_code"]) == ("unsupported_feature", -32601)
            assert failure.message.startswith("unsupported feature")

    run(main)


@requirement("nexo:host-channel-input")
def test_a_message_of_an_unknown_kind_is_refused_before_it_is_sent(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, body=CHANNEL, extends={"channels": ["slack"]}, channels=["slack"])
    bogus = {"kind": "bogus", "to": "U1", "body": "hi"}

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            called = (await host.attempt("slack", {"action": "send", "message": bogus})).failure
            for wrong in (bogus, {"to": "U1"}):
                with pytest.raises(CallFailed) as caught:
                    await host.channels["slack"].send(wrong)
                assert caught.value.code == Code.INVALID_INPUT
            with pytest.raises(CallFailed) as caught:
                await host.channels["slack"].start(7)  # type: ignore[arg-type]
            assert caught.value.code == Code.INVALID_INPUT
            assert called is not None and called.code == Code.INVALID_INPUT

    run(main)


HOOK = "def hook_on_hook(m):\n    reply(m, {answer})\n"


@requirement("nexo:host-hooks", "nexo:host-hooks-continue")
def test_hooks_are_asked_in_order_and_one_that_fails_is_passed_over(run: Run, tmp_path: Path) -> None:
    hooks = {"hooks": ["before_message"]}
    write_nexo_plugin(tmp_path, "a", HOOK.format(answer='{"override": {"tag": "a"}}'), extends=hooks)
    write_nexo_plugin(tmp_path, "b", "def hook_on_hook(m):\n    os._exit(1)\n", extends=hooks)
    write_nexo_plugin(tmp_path, "c", extends=hooks)
    write_nexo_plugin(tmp_path, "d", HOOK.format(answer="[1]"), extends=hooks)
    answer = '{"decision": "transform", "transformed_body": "[" + m["params"]["event"]["tag"] + "]"}'
    write_nexo_plugin(tmp_path, "e", HOOK.format(answer=answer), extends=hooks)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            outcome = await host.fire("before_message", {"sender": "alice", "body": "ping"})
            assert outcome.event == {"sender": "alice", "body": "[a]", "tag": "a"}
            assert not outcome.blocked
            assert [(plugin, failure.code) for plugin, failure in outcome.skipped] == [
                ("b", Code.CRASHED),
                ("c", Code.NOT_FOUND),
                ("d", Code.MALFORMED_RESPONSE),
            ]

    run(main)


@requirement("nexo:host-hooks-block")
@pytest.mark.parametrize("answer", ['{"abort": True, "reason": "PII"}', '{"decision": "block", "reason": "PII"}'])
def test_a_hook_that_blocks_ends_the_chain(run: Run, tmp_path: Path, answer: str) -> None:
    hooks = {"hooks": ["before_message"]}
    write_nexo_plugin(tmp_path, "a", HOOK.format(answer=answer), extends=hooks)
    write_nexo_plugin(tmp_path, "b", HOOK.format(answer='{"override": {"b": 1}}'), extends=hooks)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            outcome = await host.fire("before_message", {"body": "ping"})
            assert (outcome.blocked, outcome.blocked_by, outcome.reason) == (True, "a", "PII")
            assert outcome.event == {"body": "ping"}

    run(main)


@requirement("nexo:host-hooks-time-boxed")
def test_a_hook_that_takes_too_long_is_passed_over(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXO_PLUGIN_HOOK_TIMEOUT_MS", "200")
    hooks = {"hooks": ["before_message"]}
    write_nexo_plugin(tmp_path, "a", "def hook_on_hook(m):\n    pass\n", extends=hooks)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await host.settled()
            outcome = await host.fire("before_message", {"body": "ping"})
            assert [failure.code for _, failure in outcome.skipped] == [Code.TIMEOUT]

    run(main)


@requirement("nexo:host-first-owner-wins")
def test_the_first_plugin_to_name_a_provider_keeps_it_and_the_other_is_told(run: Run, tmp_path: Path) -> None:
    for plugin_id in ("a", "b"):
        body = MODEL.replace("p['provider']", repr(plugin_id))
        write_nexo_plugin(tmp_path, plugin_id, body, extends={"llm_providers": ["cohere"]})

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert (await host.llm.chat("cohere", REQUEST)).text == "a/m: hi"
            assert host.plugins()[1].counters["name_taken"] == 1
            request = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
            answer = await host.call("b/cohere", request)
            assert answer["content"]["text"] == "b/m: hi"

    run(main)


@requirement("nexo:host-registries-reach-live-child")
def test_after_a_respawn_every_registry_reaches_the_living_child(run: Run, tmp_path: Path) -> None:
    body = MODEL + VECTORS + CHANNEL + HOOK.format(answer='{"override": {"pid": os.getpid()}}')
    body += "def tool_invoke(m):\n    reply(m, os.getpid())\n"
    write_nexo_plugin(
        tmp_path,
        body=body,
        tools=["pid"],
        extends={
            "channels": ["slack"],
            "llm_providers": ["cohere"],
            "memory_backends": ["pinecone"],
            "hooks": ["before_message"],
        },
        channels=["slack"],
        more="[plugin.supervisor]\nrespawn = true\nbackoff_ms = 100\n",
    )

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            slack, store = host.channels["slack"], host.vectors.get("pinecone")
            assert not isinstance(store, Failure)
            first = await host.call("p_pid", {})
            os.kill(first, signal.SIGKILL)
            await until(lambda: host.plugins()[0].generation == 2)
            second = await host.call("p_pid", {})
            assert second != first
            await slack.start("again")
            assert (await slack.send({"kind": "text", "to": "U1", "body": "hi"}))["message_id"].startswith("['again']")
            assert (await host.llm.chat("cohere", REQUEST)).text == "cohere/m: hi"
            assert await store.upsert("kb", [VectorRecord("1", "x", [0.1, 0.2])]) == 1
            assert (await host.fire("before_message", {})).event == {"pid": second}

    run(main)


ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@requirement("nexo:host-llm-dict")
def test_a_chat_takes_a_plain_dict_and_says_what_is_wrong_with_another(run: Run, tmp_path: Path) -> None:
    model(tmp_path)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert (await host.llm.chat("cohere", ASKED)).text == "cohere/m: hi"
            assert [chunk["type"] async for chunk in host.llm.stream("cohere", ASKED)][-1] == "end"
            assert (await host.llm.chat("cohere", plugbay.ChatRequest(**ASKED))).text == "cohere/m: hi"
            for wrong in ({"model": "m"}, {**ASKED, "temprature": 1}, {**ASKED, "max_tokens": "many"}):
                with pytest.raises(CallFailed) as caught:
                    await host.llm.chat("cohere", wrong)
                assert caught.value.code == Code.INVALID_INPUT
            with pytest.raises(TypeError, match=r"plugbay\.ChatRequest, or a dict such as \{.*\}, not 'hi'"):
                await host.llm.chat("cohere", "hi")  # type: ignore[arg-type]

    run(main)


@requirement("nexo:host-llm-finish-other")
def test_a_model_may_end_for_another_reason_without_naming_it(run: Run, tmp_path: Path) -> None:
    model(tmp_path, MODEL + '\ndef llm_chat(m):\n    reply(m, final("a", finish_reason={"kind": "other"}))\n')

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            reply = await host.llm.chat("cohere", REQUEST)
            assert (reply.text, reply.finish_reason) == ("a", "other:unspecified")

    run(main)


@requirement("nexo:host-hooks-counted")
def test_failures_of_hooks_are_logged_and_counted(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hooks = {"hooks": ["before_message"]}
    write_nexo_plugin(tmp_path, "a", "def hook_on_hook(m):\n    fail(m, -32603, 'no rules')\n", extends=hooks)
    write_nexo_plugin(tmp_path, "b", HOOK.format(answer="{}"), extends=hooks)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await host.fire("before_message", {"body": "ping"}, timeout=PATIENCE)
            await host.fire("before_message", {"body": "ping"}, timeout=PATIENCE)
            counters = {status.spec.id: status.counters for status in host.plugins()}
            assert (counters["a"]["hook_failed"], counters["b"].get("hook_failed")) == (2, None)

    run(main)
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text for text in warned if "a: hook_failed: before_message: plugin_error: no rules" in text]


@requirement("nexo:host-hook-after-reported")
@pytest.mark.parametrize("answer", ['{"abort": True, "reason": "PII"}', '{"decision": "block", "reason": "PII"}'])
def test_a_hook_that_would_block_the_past_is_reported(run: Run, tmp_path: Path, answer: str) -> None:
    write_nexo_plugin(tmp_path, "a", HOOK.format(answer=answer), extends={"hooks": ["after_message"]})

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            outcome = await host.fire("after_message", {"body": "ping"}, timeout=PATIENCE)
            ((plugin_id, failure),) = outcome.skipped
            assert (outcome.blocked, plugin_id) == (False, "a")
            assert "cannot be blocked" in failure.message and "PII" in failure.message
            assert host.journal.counts("a")["hook_failed"] == 1

    run(main)


@requirement("nexo:manifest-hooks-custom")
def test_a_hook_of_any_name_is_called_when_the_application_fires_it(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, "a", HOOK.format(answer='{"override": {"a": 1}}'), extends={"hooks": ["pii_redact"]})

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert (await host.fire("pii_redact", {"body": "ping"}, timeout=PATIENCE)).event == {"body": "ping", "a": 1}

    run(main)


RAW = """
def tool_invoke(m):
    body = {body}
    sys.stdout.buffer.write(b'{{"jsonrpc":"2.0","id":%d,"result":' % m["id"] + body + b"}}\\n")
    sys.stdout.buffer.flush()
"""


@requirement("nexo:host-unreadable-answer")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('b"NaN"', Code.MALFORMED_RESPONSE),
        ("b'\"\\xff\"'", Code.MALFORMED_RESPONSE),
        ("b'\"' + b'x' * (17 << 20) + b'\"'", Code.FRAME_TOO_LARGE),
    ],
    ids=["NaN", "bad UTF-8", "oversized"],
)
def test_an_unreadable_answer_fails_its_call_long_before_the_deadline(
    run: Run, tmp_path: Path, body: str, code: str
) -> None:
    write_nexo_plugin(tmp_path, body=RAW.format(body=body), tools=["t"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            failure = (await host.attempt("p_t", {}, timeout=600)).failure
            assert failure is not None and failure.code == code
            assert "the answer to tool.invoke cannot be used" in failure.message

    run(main)


TEXTS = [
    ('fail(m, -33401, "gone")', "tool not found: gone"),
    ('fail(m, -33402, "no city", details={"city": 1})', "argument invalid: no city"),
    ('fail(m, -33403, "boom")', "boom"),
    ('fail(m, -33404, "busy", retry_after_ms=5000)', "unavailable; retry after 5s: busy"),
    ('fail(m, -33404, "unavailable", retry_after_ms=1500)', "unavailable; retry after 1.5s"),
    ('fail(m, -33404, "busy")', "unavailable: busy"),
    ('fail(m, -33405, "not you")', "denied: not you"),
]


@requirement("nexo:host-error-texts")
@pytest.mark.parametrize(("body", "text"), TEXTS)
def test_errors_of_tools_have_the_texts_that_operators_search_for(
    run: Run, tmp_path: Path, body: str, text: str
) -> None:
    write_nexo_plugin(tmp_path, body=f"def tool_invoke(m):\n    {body}\n", tools=["t"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            failure = (await host.attempt("p_t", {})).failure
            assert failure is not None and failure.message == text

    run(main)


VECTOR_TEXTS = [
    ('fail(m, -33301, "kb", collection="kb")', "collection not found: kb"),
    ('fail(m, -33302, "dimension mismatch", expected=768, got=2)', "dimension mismatch: expected 768, got 2"),
    ('fail(m, -33303, "rate limited", retry_after_secs=60)', "rate limited; retry after 60s"),
    ('fail(m, -33304, "disk full")', "write failed: disk full"),
]


@requirement("nexo:host-error-texts")
@pytest.mark.parametrize(("body", "text"), VECTOR_TEXTS)
def test_errors_of_vector_backends_have_the_texts_that_operators_search_for(
    run: Run, tmp_path: Path, body: str, text: str
) -> None:
    functions = f"def memory_vector_delete(m):\n    {body}\n"
    write_nexo_plugin(tmp_path, body=functions, extends={"memory_backends": ["pinecone"]})

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            backend = host.vectors.get("pinecone")
            assert not isinstance(backend, Failure)
            with pytest.raises(CallFailed) as caught:
                await backend.delete("kb", ["r1"])
            assert caught.value.failure.message == text

    run(main)


@requirement("nexo:host-error-texts")
def test_errors_of_models_have_the_texts_that_operators_search_for(run: Run, tmp_path: Path) -> None:
    errors = {"rate": '-33103, "slow", retry_after_secs=30', "auth": '-33102, "no key"'}
    body = "def llm_chat(m):\n" + "".join(
        f"    if m['params']['model'] == {name!r}: fail(m, {error})\n" for name, error in errors.items()
    )
    model(tmp_path, body)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            for name, text in (
                ("rate", "rate limited; retry after 30s: slow"),
                ("auth", "authentication failed: no key"),
            ):
                with pytest.raises(CallFailed) as caught:
                    await host.llm.chat("cohere", {**ASKED, "model": name})
                assert caught.value.failure.message == text

    run(main)


@requirement("nexo:host-version-setting")
def test_plugins_see_the_nexo_version_of_the_operator(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEXO_VERSION", "0.9.3")
    body = """
    hello = initialize
    def initialize(m):
        global SEEN
        SEEN = m["params"]["nexo_version"]
        hello(m)
    def tool_invoke(m):
        reply(m, SEEN)
    """
    write_nexo_plugin(tmp_path, body=body, tools=["t"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert await host.call("p_t", {}) == "0.9.3"

    run(main)


@requirement("nexo:host-sandbox-user")
@pytest.mark.parametrize(
    ("drop_user", "dropped"), [("", True), ("drop_user = true", True), ("drop_user = false", False)]
)
def test_a_confined_plugin_is_user_and_group_65534_unless_it_keeps_its_user(
    run: Run, tmp_path: Path, drop_user: str, dropped: bool
) -> None:
    body = "import pwd\ndef tool_invoke(m):\n    reply(m, [os.getuid(), os.getgid(), pwd.getpwuid(os.getuid())[0]])\n"
    more = f"[plugin.sandbox]\nenabled = true\n{drop_user}\n"
    write_nexo_plugin(tmp_path, body=body, tools=["who"], more=more)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            uid, gid, name = await host.call("p_who", {})
            outside = uid_of("p", SandboxSettings())
            kept = os.geteuid() if outside is None else outside
            assert (uid, gid) == ((65534, 65534) if dropped else (kept, kept))
            assert name == ("nobody" if dropped else "plugin")

    run(main)
