"""Command lines that plugins answer. Real children, both loops."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay import CallFailed, Code, Host
from plugbay.host.screens.command_lines import CliOutput
from tests.support.ainb import write_ainb_plugin
from tests.support.loops import Run
from tests.support.requirements import requirement

DISPATCH = "def cli_dispatch(params, m):\n    "


@requirement("ainb:host-cli")
def test_a_command_line_arrives_as_it_is_and_its_output_byte_for_byte(run: Run, tmp_path: Path) -> None:
    body = (
        DISPATCH + 'reply(m, {"stdout": b64(bytes(range(256))), "stderr": b64(repr(params).encode()), "exit_code": 7})'
    )
    write_ainb_plugin(tmp_path, body=body, namespaces=["notes"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            done = await host.run_cli("notes", ["add", "--help", "-x", "", "buy milk", "漢"])
            assert done.stdout == bytes(range(256))
            assert done.stderr.decode() == repr(
                {"namespace": "notes", "argv": ["add", "--help", "-x", "", "buy milk", "漢"]}
            )
            assert done.exit_code == 7
            assert await host.run_cli("p/notes", []) == CliOutput(
                bytes(range(256)), b"{'namespace': 'notes', 'argv': []}", 7
            )

    run(main)


@requirement("ainb:host-cli")
def test_the_bytes_may_be_an_array_of_numbers_and_the_status_any_of_32_bits(run: Run, tmp_path: Path) -> None:
    body = DISPATCH + 'reply(m, {"stdout": [104, 105], "stderr": "", "exit_code": int(params["argv"][0])})'
    write_ainb_plugin(tmp_path, body=body, namespaces=["notes"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            for status in (0, 255, -1, 2**31 - 1, -(2**31)):
                assert await host.run_cli("notes", [str(status)]) == CliOutput(b"hi", b"", status)

    run(main)


@requirement("ainb:host-cli-malformed")
@pytest.mark.parametrize(
    "answer",
    [
        '{"stdout": "not base64!", "stderr": "", "exit_code": 0}',
        '{"stdout": "", "exit_code": 0}',
        '{"stdout": "", "stderr": "", "exit_code": 1.5}',
        '{"stdout": "", "stderr": "", "exit_code": 2147483648}',
        '{"stdout": [256], "stderr": "", "exit_code": 0}',
        "None",
    ],
)
def test_an_answer_of_another_shape_is_a_failure_and_the_next_one_counts(run: Run, tmp_path: Path, answer: str) -> None:
    good = '{"stdout": "", "stderr": "", "exit_code": 0}'
    write_ainb_plugin(tmp_path, body=f"{DISPATCH}reply(m, {answer} if params['argv'] else {good})", namespaces=["n"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            with pytest.raises(CallFailed) as caught:
                await host.run_cli("n", ["bad"])
            assert caught.value.code == Code.MALFORMED_RESPONSE
            assert await host.run_cli("n", []) == CliOutput(b"", b"", 0)

    run(main)


@requirement("ainb:host-cli-errors")
@pytest.mark.parametrize(
    ("number", "code"), [(-32601, Code.TOOL_NOT_EXPOSED), (-32602, Code.INVALID_INPUT), (-32000, Code.PLUGIN_ERROR)]
)
def test_a_plugin_may_refuse_a_command_line(run: Run, tmp_path: Path, number: int, code: str) -> None:
    write_ainb_plugin(tmp_path, body=f'{DISPATCH}fail(m, {number}, "no")', namespaces=["n"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            with pytest.raises(CallFailed) as caught:
                await host.run_cli("n", [])
            assert (caught.value.code, caught.value.failure.detail["plugin_code"]) == (code, number)

    run(main)


def test_nothing_is_started_for_a_name_nobody_has_or_words_that_are_no_text(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, namespaces=["notes"], screens=["list"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            with pytest.raises(CallFailed, match="no cli namespace is called 'list'") as unknown:
                await host.run_cli("list", [])
            assert unknown.value.code == Code.NOT_FOUND
            with pytest.raises(CallFailed, match="argument 2 is no UTF-8") as unsayable:
                await host.run_cli("notes", ["a", "\udcff"])
            assert unsayable.value.code == Code.INVALID_INPUT
            assert host.plugins()[0].state == "idle"

    run(main)


@requirement("ainb:host-cli-timeout")
def test_a_command_line_without_an_end_is_given_up_after_the_callers_time(run: Run, tmp_path: Path) -> None:
    body = DISPATCH + 'if not params["argv"]: reply(m, {"stdout": "", "stderr": "", "exit_code": 0})'
    write_ainb_plugin(tmp_path, body=body, namespaces=["n"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await host.run_cli("n", [])
            with pytest.raises(CallFailed) as caught:
                await host.run_cli("n", ["hang"], timeout=0.05)
            assert caught.value.code == Code.TIMEOUT
            assert (await host.run_cli("n", [])).exit_code == 0

    run(main)
