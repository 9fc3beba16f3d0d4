"""A command line: what a handler prints, writes, returns or raises, in a real process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from plugbay.sdk.screens.command_lines import CliResult, Output
from tests.sdk.processes import Framed, running_framed
from tests.support.requirements import requirement

SOURCE = """
import argparse, threading
plugin = Plugin("p", "1.0.0")

RESULTS = {
    "text": "héllo\\n", "bytes": b"\\xff", "code": 3, "nothing": None, "negative": -1, "large": 256, "set": {1},
    "result": CliResult("out", b"err", 4), "surrogate": "a\\udc80",
}
RAISES = {
    "exit": SystemExit(5), "exit_text": SystemExit("no such thing"), "exit_none": SystemExit(), "bug": ValueError("x"),
    "service": ServiceError("timeout", "too slow"), "interrupt": KeyboardInterrupt(), "own": ToolDenied("not you"),
}

@plugin.cli("returns")
def returns(argv): return RESULTS[argv[0]]

@plugin.cli("returns_later")
async def returns_later(argv): return RESULTS[argv[0]]

@plugin.cli("raises")
def raises(argv):
    print("before")
    raise RAISES[argv[0]]

@plugin.cli("raises_later")
async def raises_later(argv):
    print("before")
    raise RAISES[argv[0]]

@plugin.cli("awaits")
def awaits(argv):
    async def later():
        print("later")
        return 6
    print("now")
    return later()

@plugin.cli("writes")
def writes(argv, ctx):
    print("printed")
    ctx.out.write(b"\\x00bytes\\n")
    ctx.out.writelines(["two ", "lines\\n"])
    sys.stdout.buffer.write(b"buffered\\n")
    sys.stdout.flush()
    print("to stderr", file=sys.stderr)
    ctx.err.write("and more\\n")
    return f"{sys.stdout.isatty()} {sys.stdout.encoding} {sys.stdout.writable()}"

@plugin.cli("parses")
def parses(argv):
    parser = argparse.ArgumentParser(prog="p parses")
    parser.add_argument("--count", type=int, required=True)
    print(parser.parse_args(argv).count * 2)

@plugin.cli("elsewhere")
def elsewhere(argv):
    thread = threading.Thread(target=lambda: print("from a thread"))
    thread.start()
    thread.join()
    print("from the handler")

@plugin.screen("main")
def draw(canvas):
    print("from a screen")
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framed]:
    with running_framed(tmp_path_factory.mktemp("cli"), SOURCE) as plugin:
        plugin.greet()
        yield plugin


BOTH = pytest.mark.parametrize("way", ["", "_later"], ids=["plain", "async"])


@BOTH
@requirement("ainb:sdk-cli")
@pytest.mark.parametrize(
    ("what", "out", "err", "code"),
    [
        ("text", b"h\xc3\xa9llo\n", b"", 0),
        ("bytes", b"\xff", b"", 0),
        ("code", b"", b"", 3),
        ("nothing", b"", b"", 0),
        ("negative", b"", b"", 255),
        ("large", b"", b"", 0),
        ("result", b"out", b"err", 4),
        ("surrogate", b"a?", b"", 0),
    ],
)
def test_what_is_returned_is_the_output(plugin: Framed, way: str, what: str, out: bytes, err: bytes, code: int) -> None:
    assert plugin.run(f"returns{way}", what) == (out, err, code)


@BOTH
@requirement("ainb:sdk-cli")
@pytest.mark.parametrize(
    ("what", "err", "code"),
    [
        ("exit", b"", 5),
        ("exit_none", b"", 0),
        ("exit_text", b"no such thing\n", 1),
        ("bug", b"ValueError: x\n", 1),
        ("service", b"it needs the host: too slow\n", 1),
        ("interrupt", b"KeyboardInterrupt\n", 1),
        ("own", b"not you\n", 1),
    ],
)
def test_what_is_raised_is_an_exit_code(plugin: Framed, way: str, what: str, err: bytes, code: int) -> None:
    assert plugin.run(f"raises{way}", what) == (b"before\n", err, code)


@BOTH
@requirement("ainb:sdk-cli")
def test_a_result_that_is_none_is_a_failure_of_the_command(plugin: Framed, way: str) -> None:
    out, err, code = plugin.run(f"returns{way}", "set")
    assert (out, code) == (b"", 1)
    assert err.startswith(b"TypeError: a command line returns a str")


@requirement("ainb:sdk-cli-print")
def test_everything_that_a_handler_writes_is_captured_in_order(plugin: Framed) -> None:
    out, err, code = plugin.run("writes")
    assert out == b"printed\n\x00bytes\ntwo lines\nbuffered\nFalse utf-8 True"
    assert (err, code) == (b"to stderr\nand more\n", 0)


@requirement("ainb:sdk-cli-print")
def test_a_plain_handler_may_go_on_in_a_coroutine(plugin: Framed) -> None:
    assert plugin.run("awaits") == (b"now\nlater\n", b"", 6)


@requirement("ainb:sdk-cli-print")
def test_argparse_works_as_in_a_program(plugin: Framed) -> None:
    assert plugin.run("parses", "--count", "4") == (b"8\n", b"", 0)
    out, err, code = plugin.run("parses", "--help")
    assert (out.startswith(b"usage: p parses"), err, code) == (True, b"", 0)
    out, err, code = plugin.run("parses", "--count", "x")
    assert (out, b"p parses: error: argument --count: invalid int value" in err, code) == (b"", True, 2)


@requirement("ainb:sdk-cli")
def test_an_undeclared_namespace_is_exit_code_2(plugin: Framed) -> None:
    out, err, code = plugin.run("other")
    assert (out, b"unknown namespace 'other'" in err, code) == (b"", True, 2)


@requirement("ainb:sdk-cli-print")
def test_what_is_printed_elsewhere_goes_to_stderr(tmp_path: Path) -> None:
    with running_framed(tmp_path, SOURCE) as plugin:
        plugin.greet()
        assert plugin.run("elsewhere") == (b"from the handler\n", b"", 0)
        assert plugin.stderr_line() == "from a thread\n"
        plugin.render()
        assert plugin.stderr_line() == "from a screen\n"


def test_the_exit_of_a_copy_is_no_exit_of_the_command(tmp_path: Path) -> None:
    source = """
plugin = Plugin("p")

@plugin.cli("forks")
def forks(argv):
    copy = os.fork()
    if copy == 0:
        sys.exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) + 1
"""
    with running_framed(tmp_path, f"import warnings; warnings.simplefilter('ignore')\n{source}") as plugin:
        plugin.greet()
        assert plugin.run("forks") == (b"", b"", 4)
        plugin.close()
        assert (plugin.status(), plugin.errors()) == (0, "")


def test_a_result_has_defaults() -> None:
    assert CliResult() == CliResult(b"", b"", 0)


def test_an_output_counts_like_a_stream_and_is_its_own_buffer() -> None:
    output = Output()
    assert (output.write("é"), output.write(b"ab"), output.buffer) == (1, 2, output)
    assert output.value() == b"\xc3\xa9ab"
