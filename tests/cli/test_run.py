"""Command lines of plugins, run like programs."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Run, command, descendants_of, environment, wait_until, write_manifest
from tests.support.ainb import write_ainb_plugin
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement

DISPATCH = "def cli_dispatch(params, m):\n    "
ANSWER = DISPATCH + 'reply(m, {"stdout": b64(%s), "stderr": b64(%s), "exit_code": %s})\n'


def run_bytes(cwd: Path, *arguments: str | Path | bytes) -> subprocess.CompletedProcess[bytes]:
    words: list[str | bytes] = [*command(), *(word if isinstance(word, bytes) else str(word) for word in arguments)]
    return subprocess.run(words, capture_output=True, cwd=cwd, env=environment(cwd), timeout=PATIENCE, check=False)


@requirement("ainb:host-cli")
def test_output_and_status_are_exactly_the_plugins(cwd: Path) -> None:
    write_ainb_plugin(cwd, body=ANSWER % ("bytes(range(256))", 'b"\\xff\\x1b[31mred\\r\\n"', 3), namespaces=["notes"])
    done = run_bytes(cwd, "run", "--plugins", ".", "notes")
    assert done.stdout == bytes(range(256))
    assert done.stderr == b"\xff\x1b[31mred\r\n"
    assert done.returncode == 3


@requirement("ainb:host-cli")
@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["-h"],
        ["--json", "--plugins", "elsewhere", "--timeout", "0"],
        ["--", "-x", "--"],
        ["add", "buy milk", "", "漢", "*", "$HOME"],
        [],
    ],
)
def test_every_word_after_the_namespace_is_the_plugins(run: Run, cwd: Path, words: list[str]) -> None:
    write_ainb_plugin(cwd, body=ANSWER % ('json.dumps(params["argv"]).encode()', 'b""', 0), namespaces=["notes"])
    done = run("run", "--plugins", ".", "--timeout", "20", "notes", *words)
    assert (done.code, done.json, done.err) == (0, words, "")


def test_a_plugin_of_several_contracts_is_run_under_the_one_that_has_command_lines(run: Run, cwd: Path) -> None:
    root = write_ainb_plugin(cwd, body=ANSWER % ('b"out"', 'b""', 0), namespaces=["notes"])
    write_manifest(root, {"plugin_id": "p", "plugin_version": "1", "protocol_version": "rterm.plugin.v1"})
    done = run("run", "--no-sandbox", "--plugins", ".", "notes")
    assert (done.code, done.out) == (0, "out")


@pytest.mark.parametrize(("status", "seen"), [(0, 0), (255, 255), (256, 0), (300, 44), (-1, 255)])
def test_a_status_of_more_than_eight_bits_is_cut_as_a_shell_would(run: Run, cwd: Path, status: int, seen: int) -> None:
    write_ainb_plugin(cwd, body=ANSWER % ('b""', 'b""', status), namespaces=["n"])
    assert run("run", "--plugins", ".", "n").code == seen


def test_nothing_of_the_hosts_is_on_stderr_when_all_went_well(run: Run, cwd: Path) -> None:
    body = 'def init(m):\n    reply(m, {"name": "somebody else", "version": "9.9.9"})\n    send(id=99, result=1)\n'
    write_ainb_plugin(cwd, body=body + ANSWER % ('b"out"', 'b"err"', 0), namespaces=["n"])
    write_ainb_plugin(cwd, "broken", abi_version=9)
    done = run("run", "--plugins", ".", "n")
    assert (done.code, done.out, done.err) == (0, "out", "err")


def test_only_the_plugin_that_is_asked_is_started(run: Run, cwd: Path) -> None:
    write_ainb_plugin(cwd, namespaces=["n"])
    body, eager = 'open("started", "w").close()\n', {"spawn": "eager"}
    other = write_ainb_plugin(cwd, "other", body=body, namespaces=["o"], lifecycle=eager)
    (cwd / "plugbay.toml").write_text('[plugins.other.sandbox]\noff = "it writes beside itself"\n')
    assert run("run", "--plugins", ".", "n", "x").out == "n x\n"
    assert not (other / "started").exists()
    assert run("run", "--plugins", ".", "other/o").out == "o\n"
    assert (other / "started").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--plugins", ".", "nots"], 4, "plugbay: not_found: no cli namespace is called 'nots'; did you mean notes"),
        (["--plugins", "nowhere", "notes"], 4, "plugbay: not_found: there is no folder nowhere"),
        (["--plugins", "empty", "notes"], 4, "plugbay: not_found: there is no plugin in empty"),
        (["--plugins", ".", "--config", "bad.toml", "notes"], 3, "plugbay: unavailable: bad.toml cannot be used"),
        (["--plugins", ".", "--timeout", "0.3", "slow"], 8, "plugbay: slow: timeout: "),
        (["--plugins", ".", "refuses"], 10, "plugbay: refuses: plugin_error: not today"),
        (["--plugins", ".", "wants"], 5, "plugbay: wants: capability_not_allowed: pending: it requests event_bus"),
        (["--plugins", ".", "dies"], 1, "plugbay: its stderr: my last words"),
        (["notes"], 2, "Missing option '--plugins'"),
        (["--plugins", "."], 2, "Missing argument 'NAMESPACE'"),
        (["--plugins", ".", "--timeout", "-1", "notes"], 2, "more than 0 and at most 3600"),
    ],
)
def test_a_failure_of_plugbays_own_has_its_status_and_says_whose_it_is(
    run: Run, cwd: Path, arguments: list[str], status: int, words: str
) -> None:
    (cwd / "empty").mkdir()
    (cwd / "bad.toml").write_text("= 1")
    write_ainb_plugin(cwd, "notes", namespaces=["notes"])
    write_ainb_plugin(cwd, "slow", body=DISPATCH + "pass\n", namespaces=["slow"])
    write_ainb_plugin(cwd, "refuses", body=DISPATCH + 'fail(m, -32000, "not today")\n', namespaces=["refuses"])
    write_ainb_plugin(cwd, "wants", namespaces=["wants"], capabilities={"event_bus": True})
    last = 'print("my last words", file=sys.stderr); sys.exit(5)\n'
    write_ainb_plugin(cwd, "dies", body=DISPATCH + last, namespaces=["dies"])
    done = run("run", *arguments)
    assert done.code == status
    assert done.out == ""
    assert words in done.err


def test_a_message_of_several_lines_is_marked_on_each_of_them(run: Run, cwd: Path) -> None:
    write_ainb_plugin(cwd, body=DISPATCH + 'fail(m, -32000, "one\\nplugbay: two")\n', namespaces=["n"])
    lines = run("run", "--plugins", ".", "n").err.splitlines()
    assert lines and all(line.startswith("plugbay: ") for line in lines)
    assert any("two" in line for line in lines)


def test_a_grant_lets_a_plugin_answer(run: Run, cwd: Path) -> None:
    write_ainb_plugin(cwd, namespaces=["n"], capabilities={"event_bus": True})
    assert run("run", "--plugins", ".", "n").code == 5
    assert run("run", "--plugins", ".", "--grant", "event_bus", "n").out == "n\n"
    assert run("run", "--plugins", "p", "--grant-all", "p/n").out == "n\n"


def test_a_plugin_that_is_left_out_is_named_when_nothing_is_found(run: Run, cwd: Path) -> None:
    write_ainb_plugin(cwd, namespaces=["n"])
    write_ainb_plugin(cwd, "broken", abi_version=9, namespaces=["b"])
    done = run("run", "--plugins", ".", "b")
    assert done.code == 4
    assert "plugbay: broken is left out: its manifest has 1 error" in done.err


def test_a_word_that_is_no_utf_8_is_reported(cwd: Path) -> None:
    write_ainb_plugin(cwd, namespaces=["n"])
    done = run_bytes(cwd, "run", "--plugins", ".", "n", b"\xff")
    assert done.returncode == 2
    assert b"argument 1 is no UTF-8" in done.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_command_line_and_its_plugin(cwd: Path, number: int, status: int) -> None:
    root = write_ainb_plugin(cwd, body=DISPATCH + 'open("asked", "w").close()\n', namespaces=["n"])
    (cwd / "plugbay.toml").write_text('[plugins.p.sandbox]\noff = "it writes beside itself"\n')
    process = subprocess.Popen(
        command("run", "--plugins", ".", "n"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment(cwd),
    )
    wait_until(lambda: (root / "asked").exists(), "the plugin to be asked")
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (status, b"")
    assert b"Traceback" not in err
    assert descendants_of(process.pid) == []


def test_a_reader_that_leaves_early_is_no_error_to_talk_about(cwd: Path) -> None:
    write_ainb_plugin(cwd, body=ANSWER % ('b"x" * 300_000', 'b""', 0), namespaces=["n"])
    reader, writer = os.pipe()
    process = subprocess.Popen(
        command("run", "--plugins", ".", "n"), stdout=writer, stderr=subprocess.PIPE, cwd=cwd, env=environment(cwd)
    )
    os.close(writer)
    os.close(reader)
    _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (1, b"")


def test_output_for_a_stream_that_is_closed_is_reported(cwd: Path) -> None:
    write_ainb_plugin(cwd, namespaces=["n"])
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *command("run", "--plugins", ".", "n")],
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment(cwd),
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1
    assert b"the stream it belongs on is closed" in done.stderr


def test_help_before_the_namespace_is_plugbays(run: Run) -> None:
    done = run("run", "--help")
    assert done.code == 0
    assert "Options stand before NAMESPACE" in done.out
