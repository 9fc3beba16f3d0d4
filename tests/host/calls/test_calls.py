"""Calls of resident plugins: schemas from the greeting, timeouts of the contract, records."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plugbay import Code, Host
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import PATIENCE, until
from tests.support.requirements import requirement

STRICT = """
def initialize(m):
    schema = {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}
    tools = [{"name": "p_go", "description": "Go somewhere.", "input_schema": schema}]
    reply(m, {"manifest": {"plugin": {"id": ID}}, "server_version": "1", "tools": tools})
"""


@requirement("nexo:host-schema-enforced")
@pytest.mark.parametrize("eager", [True, False])
def test_input_is_checked_against_the_schema_of_the_greeting_even_on_the_first_call(
    run: Run, tmp_path: Path, eager: bool
) -> None:
    body = STRICT + '\ndef tool_invoke(m):\n    open("called", "a").write("x")\n    reply(m, 1)\n'
    root = write_nexo_plugin(tmp_path, body=body, tools=["go"])

    async def main() -> None:
        async with Host.load(root, eager=eager) as host:
            for _ in range(2):
                failure = (await host.attempt("p_go", {"uri": "x"})).failure
                assert failure is not None and failure.code == Code.INVALID_INPUT
                assert "url" in failure.message
            assert not (root / "called").exists()
            assert await host.call("p_go", {"url": "x"}) == 1
            assert host.exports()["p/p_go"].description == "Go somewhere."

    run(main)


def test_a_time_in_quotes_is_an_error_of_the_caller(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, tools=["go"])
    quoted: Any = "5"

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            for ask in (host.call, host.attempt):
                with pytest.raises(TypeError, match=r"timeout is a number of seconds, such as 5 or 0\.5, not '5'"):
                    await ask("p_go", {}, timeout=quoted)

    run(main)


def test_a_schema_that_cannot_be_enforced_is_noted_and_nothing_is_checked(run: Run, tmp_path: Path) -> None:
    body = STRICT.replace('"type": "object", ', '"type": "no such type", ')
    write_nexo_plugin(tmp_path, body=body, tools=["go"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert await host.call("p_go", {"anything": 1}) == {"anything": 1}
            assert host.plugins()[0].counters == {"greeting": 1}

    run(main)


@requirement("nexo:host-undelivered-tool")
def test_a_tool_that_was_declared_and_not_delivered_is_not_exposed(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, body="TOOLS.pop()\n", tools=["one", "two"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            failure = (await host.attempt("p_two")).failure
            assert failure is not None
            assert (failure.code, failure.detail["plugin_code"]) == (Code.TOOL_NOT_EXPOSED, -33401)
            assert await host.call("p_one", {}) == {}
            assert host.plugins()[0].counters == {"greeting": 1}

    run(main)


@requirement("nexo:host-tool-invoke")
def test_the_request_carries_plugin_tool_arguments_and_agent(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, body='def tool_invoke(m):\n    reply(m, m["params"])\n', tools=["t"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            sent = await host.call("p_t", {"a": 1}, context={"agent_id": "shopper"})
            assert sent == {"plugin_id": "p", "tool_name": "p_t", "args": {"a": 1}, "agent_id": "shopper"}
            assert (await host.call("p_t", {}))["agent_id"] is None

    run(main)


TOOL_ERRORS: list[tuple[int, dict[str, Any], str, int | None]] = [
    (-33401, {}, Code.TOOL_NOT_EXPOSED, None),
    (-33402, {"details": {"city": "missing"}}, Code.INVALID_INPUT, None),
    (-33403, {}, Code.PLUGIN_ERROR, None),
    (-33404, {"retry_after_ms": 5000}, Code.UNAVAILABLE, 5000),
    (-33404, {}, Code.UNAVAILABLE, None),
    (-33405, {}, Code.PLUGIN_ERROR, None),
    (-32601, {}, Code.TOOL_NOT_EXPOSED, None),
    (-32603, {}, Code.PLUGIN_ERROR, None),
]


@requirement("nexo:host-tool-errors")
@pytest.mark.parametrize(("number", "data", "code", "retry_after"), TOOL_ERRORS)
def test_a_tools_error_is_typed_and_carries_its_data(
    run: Run, tmp_path: Path, number: int, data: dict[str, Any], code: str, retry_after: int | None
) -> None:
    write_nexo_plugin(tmp_path, body=f"def tool_invoke(m):\n    fail(m, {number}, 'no', **{data!r})\n", tools=["t"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            failure = (await host.attempt("p_t")).failure
            assert failure is not None
            assert (failure.code, failure.origin, failure.retry_after_ms) == (code, "plugin", retry_after)
            assert failure.detail["plugin_code"] == number
            assert failure.retryable == (number == -33404)
            assert data.get("details") == failure.detail.get("details")

    run(main)


@requirement("nexo:host-timeouts")
@pytest.mark.parametrize("by", ["variable", "operator", "caller"])
def test_a_call_that_is_not_answered_in_time_is_a_timeout_and_the_child_lives(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    body = 'def tool_invoke(m):\n    m["params"]["args"] and reply(m, os.getpid())\n'
    root = write_nexo_plugin(tmp_path, body=body, tools=["t"])
    config = tmp_path / "c.toml"
    config.write_text("[plugins.p]\ntimeouts = { call = 0.2 }\n" if by == "operator" else "")
    if by == "variable":
        monkeypatch.setenv("NEXO_PLUGIN_TOOL_TIMEOUT_MS", "200")

    async def main() -> None:
        async with Host.load(root, config=config) as host:
            await host.settled()
            failure = (await host.attempt("p_t", {}, timeout=0.2 if by == "caller" else None)).failure
            assert failure is not None and failure.code == Code.TIMEOUT
            assert await host.call("p_t", {"answer": True}, timeout=PATIENCE) == host.plugins()[0].pid

    run(main)


@requirement("nexo:host-late-answers")
def test_a_late_answer_is_counted_and_reaches_nobody(run: Run, tmp_path: Path) -> None:
    body = """
    held = []
    def tool_invoke(m):
        if m["params"]["args"].get("hold"):
            held.append(m)
            return
        for old in held:
            reply(old, "late")
        reply(m, "now")
    """
    write_nexo_plugin(tmp_path, body=body, tools=["t"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await host.settled()
            assert (await host.attempt("p_t", {"hold": True}, timeout=0.2)).failure is not None
            assert await host.call("p_t", {}) == "now"
            assert host.plugins()[0].counters == {"late_answers": 1}

    run(main)


def test_a_cancelled_call_leaves_the_child_to_the_others(run: Run, tmp_path: Path) -> None:
    body = 'def tool_invoke(m):\n    m["params"]["args"] and reply(m, os.getpid())\n'
    write_nexo_plugin(tmp_path, body=body, tools=["t"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            waiting = asyncio.ensure_future(host.call("p_t", {}))
            await until(lambda: host.plugins()[0].busy == 1)
            waiting.cancel()
            await asyncio.wait({waiting})
            assert host.plugins()[0].busy == 0
            assert await host.call("p_t", {"answer": 1}) == host.plugins()[0].pid

    run(main)


@requirement("nexo:host-oversize-input")
def test_an_input_that_a_child_would_silently_drop_is_refused_here(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, tools=["t"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            failure = (await host.attempt("p_t", {"fill": "x" * (1 << 20)})).failure
            assert failure is not None and failure.code == Code.FRAME_TOO_LARGE
            large = await host.call("p_t", {"fill": "x" * 1_000_000})
            assert len(large["fill"]) == 1_000_000

    run(main)


@requirement("nexo:host-sandbox-refused")
@pytest.mark.parametrize("how", ["refused", "config", "option"])
def test_a_plugin_that_asks_for_a_sandbox_does_not_run_raw_unless_the_operator_says_so(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    root = write_nexo_plugin(tmp_path, tools=["t"], more="[plugin.sandbox]\nenabled = true\n")
    config = tmp_path / "c.toml"
    config.write_text('[plugins.p.sandbox]\noff = "it is ours"\n' if how == "config" else "")
    monkeypatch.setenv("PATH", str(tmp_path))  # without bubblewrap

    async def main() -> None:
        async with Host.load(root, config=config, unconfined=how == "option") as host:
            await host.settled()
            result = await host.attempt("p_t", {})
            if how == "refused":
                assert result.failure is not None
                assert "bwrap is not installed" in result.failure.message
                assert result.failure.code in (Code.SANDBOX_UNAVAILABLE, Code.UNAVAILABLE)
                assert host.plugins()[0].generation == 0
            else:
                assert result.value() == {}
                assert host.journal.counts("p")["unconfined"] == 1
                assert host.plugins()[0].confinement.downgrade

    run(main)


def test_a_plugin_that_requests_capabilities_is_not_started_before_they_are_granted(run: Run, tmp_path: Path) -> None:
    more = '[plugin.requires]\nnexo_capabilities = ["memory.recall"]\n'
    write_nexo_plugin(tmp_path, tools=["t"], more=more)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await host.settled()
            failure = (await host.attempt("p_t")).failure
            assert failure is not None and failure.code == Code.CAPABILITY_NOT_ALLOWED
            assert host.plugins()[0].generation == 0
        async with Host.load(tmp_path, grants=["memory.recall"]) as host:
            assert await host.call("p_t", {}) == {}

    run(main)
