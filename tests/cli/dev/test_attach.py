"""`plugbay attach`: a program without our SDK, as the plugin of a real `plugbay dev --attach`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import MakePlugin, Run, command, environment
from tests.cli.terminals import EventStream
from tests.support.patience import PATIENCE


def test_a_program_is_started_anew_for_each_conversation_until_dev_ends(
    cwd: Path, tmp_path: Path, make_plugin: MakePlugin
) -> None:
    plugin = make_plugin()
    dev = EventStream(cwd, tmp_path, "dev", plugin, "--attach", "--call", "echo", '{"text": "a"}', "--call", "echo")
    invited = dev.next("attach")
    assert not invited["interactive"] and invited["line"].endswith("attach -- ./run.sh")
    wrapper = subprocess.Popen(
        command("attach", "--json", invited["address"], "--", "./run.sh"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment(tmp_path),
    )
    try:
        assert dev.next("attached")["pid"] == wrapper.pid
        results = [dev.next("result") for _ in range(2)]
        assert [result["output"] for result in results] == [{"text": "a"}, {}], [
            result["failure"] for result in results
        ]
        script = cwd / plugin / "run.sh"
        saved = cwd / "saved"  # a program that is still being written cannot be started
        saved.write_text(script.read_text().replace("reply '", "echo so it goes >&2; reply '"))
        saved.chmod(0o755)
        saved.rename(script)
        assert dev.next("changed")["paths"] == ["run.sh"]
        results = [dev.next("result") for _ in range(2)]
        assert [result["output"] for result in results] == [{"text": "a"}, {}], [
            result["failure"] for result in results
        ]
    finally:
        dev.close()
        out, err = wrapper.communicate(timeout=PATIENCE)
    assert wrapper.returncode == 0
    assert [json.loads(line) for line in out.splitlines()] == [{"command": ["./run.sh"], "status": 0}] * 4
    assert err.decode().count("so it goes") == 2


def test_how_it_left_is_passed_on_to_the_host(cwd: Path, tmp_path: Path, make_plugin: MakePlugin) -> None:
    plugin = make_plugin(answer="exit 9")
    dev = EventStream(cwd, tmp_path, "dev", plugin, "--attach", "--once", "--call", "echo")
    address = dev.next("attach")["address"]
    wrapper = subprocess.Popen(
        command("attach", "--", "./run.sh"),
        stderr=subprocess.DEVNULL,
        cwd=cwd,
        env=environment(tmp_path, PLUGBAY_ATTACH=address),
    )
    try:
        failure = dev.next("result")["failure"]
        assert (failure["code"], failure["detail"]["exit_code"]) == ("crashed", 9)
        assert dev.left() == 1
        assert wrapper.wait(PATIENCE) == 0
    finally:
        wrapper.kill()
        wrapper.wait(PATIENCE)
        dev.close()


def test_a_program_that_cannot_be_run_is_said_on_both_sides(cwd: Path, tmp_path: Path, make_plugin: MakePlugin) -> None:
    dev = EventStream(cwd, tmp_path, "dev", make_plugin(), "--attach", "--once", "--call", "echo")
    address = dev.next("attach")["address"]
    wrapper = subprocess.Popen(
        command("attach", address, "--", "./no-such-program"),
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment(tmp_path),
    )
    try:
        assert dev.next("result")["failure"]["code"] == "crashed"
        assert dev.left() == 1
    finally:
        _, err = wrapper.communicate(timeout=PATIENCE)
        dev.close()
    assert b"./no-such-program cannot be run: No such file or directory" in err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["unix:/nowhere/socket#x", "--", "true"], 4, "nobody waits at /nowhere/socket"),
        (["nonsense", "--", "true"], 5, "must look like unix:/path/to/socket#token"),
        (["unix:/nowhere/socket#x"], 2, "name the program to run"),
        ([], 2, ""),
    ],
)
def test_what_cannot_be_is_reported(run: Run, words: list[str], status: int, said: str) -> None:
    done = run("attach", *words)
    assert done.code == status
    assert said in done.err
