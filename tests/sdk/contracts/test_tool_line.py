"""Tools behind a command line. That hosts of ainb reach them so is told in test_ainb.py."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from plugbay.sdk import Plugin, ToolError
from plugbay.sdk.context import unconnected
from plugbay.sdk.contracts.tool_line import DONE, FAILED, MISUSED, tool_line

plugin = Plugin("shop")


@plugin.tool()
def quote(city: str, days: int = 1) -> dict[str, Any]:
    """Say what it costs."""
    if city == "Nowhere":
        raise ToolError("there is no such place: Nowhere\udc80", code="not_found")
    return {"city": city, "sum": float("nan") if days == 0 else days}


@plugin.tool("later")
async def quote_later(city: str, ctx: Any) -> str:
    if not city:
        raise SystemExit(3)
    return f"{city}{ctx.plugin_id}"


@plugin.tool()
def lines() -> Iterator[str]:
    yield "a"
    yield "b"


def run(*argv: str) -> tuple[str, str, int]:
    duty = tool_line(plugin.tools, argv)
    assert duty.concurrent
    value = duty.call(lambda said, stop: unconnected("p", said, stop=stop), print)
    later = duty.handler.is_async
    output = asyncio.run(duty.settle_later(value, print)) if later else duty.settle(value, print)
    return output["stdout"].decode(), output["stderr"].decode(), output["exit_code"]


@pytest.mark.parametrize(
    ("argv", "stdout"),
    [
        ([], "quote  Say what it costs.\nlater\nlines\n"),
        (["quote", '{"city": "Lima"}'], '{"city":"Lima","sum":1}\n'),
        (["later", '{"city": "Lima"}'], '"Limap"\n'),
        (["lines"], '"ab"\n'),
    ],
)
def test_a_result_is_json_on_stdout(argv: list[str], stdout: str) -> None:
    assert run(*argv) == (stdout, "", DONE)


@pytest.mark.parametrize(
    ("argv", "stderr", "status"),
    [
        (["qoute"], "tool_not_exposed: there is no tool 'qoute'; there is quote, later, lines\n", MISUSED),
        (["quote", "{"], "invalid_input: the input of quote is no JSON: ", MISUSED),
        (["quote", "\udc80"], "invalid_input: the input of quote is no JSON: ", MISUSED),
        (["quote", "{}", "{}"], "invalid_input: quote takes its input as one JSON value, not as 2 words\n", MISUSED),
        (["quote"], "invalid_input: city: is required\n", MISUSED),
        (["quote", '{"city": "Nowhere"}'], "not_found: there is no such place: Nowhere\\udc80\n", FAILED),
        (["quote", '{"city": "", "days": 0}'], "plugin_error: the result cannot be sent: at /sum: nan", FAILED),
        (["later", '{"city": ""}'], "plugin_error: SystemExit: 3\n", FAILED),
    ],
)
def test_what_went_wrong_is_a_code_and_a_message_on_stderr(argv: list[str], stderr: str, status: int) -> None:
    said, error, code = run(*argv)
    assert (said, error.startswith(stderr), code) == ("", True, status), error


def test_a_call_that_is_cancelled_before_its_turn_says_so() -> None:
    for words in (["quote", '{"city": "Lima"}'], ["later", '{"city": "Lima"}']):
        duty = tool_line(plugin.tools, words)
        duty.cancel("enough")
        value = duty.call(lambda said, stop: unconnected(), print)
        for output in (duty.settle(value, print), asyncio.run(duty.settle_later(value, print))):
            assert output == {"stdout": b"", "stderr": b"cancelled: enough\n", "exit_code": FAILED}
