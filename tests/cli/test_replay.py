"""`plugbay replay`: a recording replayed as a plugin or as its host, and refusals."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import plugbay
from tests.cli.conftest import REFUSE, MakePlugin, Run

CALL = ("--call", "echo", '{"text": "tea"}')
HELLO = '{"type":"handshake","protocol_version":"rterm.plugin.v1"}\n'
ASK = '{"type":"request","request_id":"r9","tool_name":"echo","context":{},"input":{"text":"%s"}}\n'


@pytest.fixture
def folder(run: Run, make_plugin: MakePlugin) -> Path:
    """A plugin, and `r.jsonl`, a recording of it."""
    folder = make_plugin()
    assert run("tap", folder, *CALL, "--record", "r.jsonl").code == 0
    return folder


# In the place of the plugin.


def test_a_recording_answers_on_stdin_and_stdout(run: Run, folder: Path) -> None:
    done = run("replay", "r.jsonl", stdin=HELLO + ASK % "tea")
    hello, answer = map(json.loads, done.out.splitlines())
    assert hello["manifest"]["plugin_id"] == "example.echo"
    assert answer == {"type": "response", "request_id": "r9", "status": "ok", "output": {"text": "tea"}}
    assert (done.code, done.err) == (0, "")


def test_what_was_not_recorded_is_refused_and_the_nearest_is_named(run: Run, folder: Path) -> None:
    done = run("replay", "r.jsonl", stdin=HELLO + ASK % "milk")
    answer = json.loads(done.out.splitlines()[1])
    assert (answer["status"], answer["error"]["code"]) == ("error", "not_recorded")
    assert done.err == (
        "replay: echo was not recorded with these parameters; "
        'the nearest is in line 5: /input/text: "milk", not "tea"\n'
    )
    loose = run("replay", "r.jsonl", "--loose", stdin=HELLO + ASK % "milk")
    assert json.loads(loose.out.splitlines()[1])["output"] == {"text": "tea"}


def test_a_recording_can_be_the_command_of_a_manifest(run: Run, folder: Path, cwd: Path) -> None:
    manifest = cwd / folder / "rterm-plugin.json"
    document = json.loads(manifest.read_text())
    (cwd / folder / "run.sh").write_text(f"#!/bin/sh\nexec $PYTHON -m plugbay replay {cwd}/r.jsonl\n")
    source = Path(plugbay.__file__).parents[1]
    document["process"]["env"] = [f"PYTHON={sys.executable}", f"PYTHONPATH={source}"]
    manifest.write_text(json.dumps(document))
    times = "{ launch = 10, handshake = 20, teardown = 10 }"  # for a machine that has much else to do
    (cwd / "plugbay.toml").write_text(f'[plugins."example.echo"]\ntimeouts = {times}\n')
    assert run("call", folder, "echo", '{"text": "tea"}').json == {"text": "tea"}
    assert run("call", folder, "echo", '{"text": "milk"}').code == 10


# In the place of the host.


def test_a_plugin_that_is_as_it_was_is_green(run: Run, folder: Path) -> None:
    done = run("replay", "r.jsonl", "--as-host", folder)
    assert (done.code, done.err) == (0, "")
    assert done.out == "✓ example.echo 1.0.0 matches the recording · 1 conversation\n  2 frames sent, 2 compared\n"


def test_a_command_will_do_in_the_place_of_a_folder(run: Run, folder: Path) -> None:
    assert run("replay", "r.jsonl", "--as-host", "--", "sh", f"{folder}/run.sh").code == 0


def test_a_changed_plugin_is_a_finding_with_old_and_new_values(run: Run, folder: Path, cwd: Path) -> None:
    script = cwd / folder / "run.sh"
    changed = """reply '"status":"ok","output":{"text":"milk"}'"""
    script.write_text(script.read_text().replace("""reply '"status":"ok","output":'"$input" """, changed))
    done = run("replay", "r.jsonl", "--as-host", folder)
    assert done.code == 9
    assert done.out.splitlines()[1:4] == ["    /output/text", '      - "tea"', '      + "milk"']
    assert done.out.splitlines()[0].startswith("✗ line 6: the answer to 'plugin_req_")
    assert done.err == "hint:  --ignore /output/text leaves out a value that changes every time\n"
    assert run("replay", "r.jsonl", "--as-host", folder, "--ignore", "/output/*").code == 0
    (finding,) = run("replay", "r.jsonl", "--as-host", folder, "--json").json["findings"]
    assert finding["differences"] == ['/output/text: "milk", not "tea"']


def test_a_plugin_of_another_contract_is_refused(run: Run, folder: Path, cwd: Path) -> None:
    text = (cwd / "r.jsonl").read_text().replace('"contract":"rune"', '"contract":"nexo"', 1)
    (cwd / "r.jsonl").write_text(text)
    done = run("replay", "r.jsonl", "--as-host", folder)
    assert done.code != 0 and done.out == ""


# Where it would lie.


@pytest.fixture
def redacted(run: Run, make_plugin: MakePlugin) -> Path:
    folder = make_plugin()
    given = '{"text": "Bearer abcdefghijklmnop1234"}'
    assert run("tap", folder, "--call", "echo", given, "--record", "r.jsonl").code == 0
    return folder


def test_as_a_host_it_refuses_before_anything_is_started(run: Run, redacted: Path) -> None:
    done = run("replay", "r.jsonl", "--as-host", redacted)
    assert done.code == 3 and done.out == ""
    assert done.err == (
        "error: r.jsonl: the host's echo in line 5 was redacted at /input/text, "
        "so it can neither be sent nor compared; --allow-redacted goes on with placeholders\n"
    )


def test_with_placeholders_it_goes_on_and_says_so(run: Run, redacted: Path) -> None:
    done = run("replay", "r.jsonl", "--as-host", redacted, "--allow-redacted")
    assert done.code == 0
    assert done.err.count("has placeholders at") == 2


def test_as_a_plugin_it_refuses_the_very_question(run: Run, redacted: Path) -> None:
    done = run("replay", "r.jsonl", stdin=HELLO + ASK % "Bearer abcdefghijklmnop1234")
    hello, answer = map(json.loads, done.out.splitlines())
    assert hello["type"] == "handshake" and answer["status"] == "error"
    assert "in line 5 was redacted at /input/text" in answer["error"]["message"]


# What it holds.


def test_check_summarizes_a_recording(run: Run, redacted: Path) -> None:
    done = run("replay", "r.jsonl", "--check")
    lines = done.out.splitlines()
    assert done.code == 0
    assert lines[0] == "example.echo 1.0.0 · rune"
    assert lines[2] == "  holds     1 conversation, 4 frames"
    assert lines[3].startswith("  host      handshake  once, ")
    assert lines[5:] == ["  missing   line 5: redacted at /input/text", "  missing   line 6: redacted at /output/text"]
    held = run("replay", "r.jsonl", "--check", "--json").json
    assert (held["frames"], held["finished"], len(held["missing"])) == (4, True, 2)


def test_check_counts_errors_and_sees_an_end_that_is_missing(run: Run, make_plugin: MakePlugin, cwd: Path) -> None:
    run("tap", make_plugin(answer=REFUSE % "x"), *CALL, "--record", "r.jsonl")
    text = (cwd / "r.jsonl").read_text().splitlines(keepends=True)
    (cwd / "r.jsonl").write_text("".join(text[:-1]) + text[-1][:5])
    done = run("replay", "r.jsonl", "--check")
    assert ", 1 error" in done.out and "incomplete" in done.out


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (["nowhere"], 4, "nowhere: No such file or directory"),
        (["notes.txt"], 3, "this is not a recording"),
        (["notes.txt", "--check"], 3, "plugbay tap PATH --call EXPORT --record FILE makes a recording"),
        (["."], 1, "Is a directory"),
        (["r.jsonl", "--as-host"], 2, "name the plugin's folder"),
        (["r.jsonl", "--json"], 2, "stdout carries the protocol"),
        (["r.jsonl", "somewhere"], 2, "stdout carries the protocol"),
        (["r.jsonl", "--speed", "0"], 2, "is not greater than 0"),
        (["r.jsonl", "--as-host", "empty"], 4, "empty"),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_the_reason(
    run: Run, folder: Path, cwd: Path, words: list[str], status: int, why: str
) -> None:
    (cwd / "notes.txt").write_text("dear diary\n")
    (cwd / "empty").mkdir()
    done = run("replay", *words)
    assert (done.code, done.out) == (status, "") and why in done.err, done.err
