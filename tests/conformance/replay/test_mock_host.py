"""A recording talks to a real plugin in the place of its host, and finds whatever is not as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugbay.conformance.replay.exchanges import UnusableFrame
from plugbay.conformance.replay.mock_host import Outcome, PlayOptions, play
from plugbay.host.discovery.folders import inspect
from plugbay.link.recording import Recording
from tests.conformance.recordings import call, items, joined, recording, result, tell
from tests.support.ainb import write_ainb_plugin
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run

WHO = {
    "name": "p",
    "version": "1.0.0",
    "api_version": 1,
    "methods": ["p.echo"],
    "notifications": [],
    "capabilities_used": [],
}
GREETED = [(">", call(1, "initialize")), ("<", result(1, WHO)), (">", tell("initialized"))]
BYE = [
    (">", call(9, "shutdown")),
    ("<", result(9, {"status": "ok"})),
    (".", {"event": "exit", "code": 0, "signal": None}),
]


def played(run: Run, folder: Path, recorded: Recording, **manner: Any) -> Outcome:
    outcomes: list[Outcome] = []
    spec = inspect(folder).spec
    assert spec is not None

    async def main() -> None:
        outcomes.append(await play(recorded, spec, PlayOptions(**manner)))

    run(main)
    return outcomes[0]


def findings(run: Run, folder: Path, *lines: Any, **manner: Any) -> list[str]:
    outcome = played(run, folder, recording("kaged", *GREETED, *lines, *BYE), **manner)
    return [" ".join([each.what, *map(str, each.differences)]) for each in outcome.findings]


def echo(id: int, said: Any, answered: Any) -> list[Any]:
    return [(">", call(id, "p.echo", said=said)), ("<", result(id, {"said": answered}))]


def test_a_plugin_that_is_as_it_was_has_no_findings(run: Run, tmp_path: Path) -> None:
    folder = write_kaged_plugin(tmp_path)
    outcome = played(run, folder, recording("kaged", *GREETED, *echo(2, "tea", "tea"), *BYE))
    assert outcome.to_json() == {"conversations": 1, "sent": 4, "compared": 3, "findings": []}


def test_a_difference_is_found_with_its_line_and_the_rest_is_tried(run: Run, tmp_path: Path) -> None:
    folder = write_kaged_plugin(tmp_path)
    recorded = recording("kaged", *GREETED, *echo(2, "tea", "milk"), *echo(3, "a", "a"), *BYE)
    outcome = played(run, folder, recorded)
    (finding,) = outcome.findings
    assert finding.to_json() == {
        "line": 6,
        "what": "the answer to 2 is different",
        "differences": ['/result/said: "tea", not "milk"'],
    }
    assert outcome.compared == 4


def test_what_is_to_be_ignored_is_not_compared(run: Run, tmp_path: Path) -> None:
    folder = write_kaged_plugin(tmp_path)
    assert findings(run, folder, *echo(2, "tea", "milk"), ignore=("/result/said",)) == []


def test_answers_may_come_in_another_order(run: Run, tmp_path: Path) -> None:
    folder = write_kaged_plugin(tmp_path)
    one, two = echo(2, "one", "one"), echo(3, "two", "two")
    assert findings(run, folder, one[0], two[0], two[1], one[1]) == []


ASKS = """
def tool(name, params, m):
    request("own-1", "kaged.storage.get", key="k")
    global waiting
    waiting = m
def answered(m):
    reply(waiting, {"said": m["result"]})
"""


def test_the_plugins_own_questions_are_answered_as_they_were(run: Run, tmp_path: Path) -> None:
    folder = write_kaged_plugin(tmp_path, body=ASKS)
    asked, answer = echo(2, "x", "kept")
    lines = [asked, ("<", call(77, "kaged.storage.get", key="k")), (">", result(77, "kept")), answer]
    assert findings(run, folder, *lines) == []


def test_a_question_that_was_not_recorded_ends_the_conversation(run: Run, tmp_path: Path) -> None:
    folder = write_kaged_plugin(tmp_path, body=ASKS)
    assert findings(run, folder, *echo(2, "x", "x")) == [
        "it asks its host for kaged.storage.get, which was not recorded, instead of the answer to 2"
    ]


def test_an_answer_that_does_not_come_is_missed(run: Run, tmp_path: Path) -> None:
    folder = write_kaged_plugin(tmp_path, body="def tool(name, params, m):\n    pass\n")
    assert findings(run, folder, *echo(2, "x", "x"), seconds=0.3) == ["the answer to 2 did not come within 0.3 s"]


def test_a_plugin_that_dies_is_told_with_its_last_words(run: Run, tmp_path: Path) -> None:
    body = "def tool(name, params, m):\n    print('oops', file=sys.stderr, flush=True)\n    os._exit(3)\n"
    folder = write_kaged_plugin(tmp_path, body=body)
    (what,) = findings(run, folder, *echo(2, "x", "x"))
    assert what == "the answer to 2 did not come: its output ended (exit code 3)\n  stderr: oops"


def test_a_notice_that_was_recorded_is_awaited_and_others_are_not_minded(run: Run, tmp_path: Path) -> None:
    body = 'def tool(name, params, m):\n    notify("other")\n    notify("changed", n=2)\n    reply(m, {"said": "x"})\n'
    folder = write_kaged_plugin(tmp_path, body=body)
    asked, answer = echo(2, "x", "x")
    assert findings(run, folder, asked, ("<", tell("changed", n=2)), answer) == []
    assert findings(run, folder, asked, ("<", tell("changed", n=1)), answer) == [
        "the notice changed is different /params/n: 2, not 1"
    ]


def test_noise_was_noise_then_and_is_noise_now(run: Run, tmp_path: Path) -> None:
    body = 'def tool(name, params, m):\n    print("noise", flush=True)\n    reply(m, {"said": "x"})\n'
    folder = write_kaged_plugin(tmp_path, body=body)
    asked, answer = echo(2, "x", "x")
    assert findings(run, folder, asked, ("<", b"other noise"), answer) == []


def test_a_process_that_leaves_otherwise_is_found(run: Run, tmp_path: Path) -> None:
    body = "import atexit\natexit.register(lambda: os._exit(4))\n"
    folder = write_kaged_plugin(tmp_path, body=body)
    assert findings(run, folder) == ["it ended with exit code 4, not with exit code 0"]


def test_every_conversation_has_a_process_of_its_own(run: Run, tmp_path: Path) -> None:
    body = 'def tool(name, params, m):\n    reply(m, {"said": os.getpid()})\n'
    folder = write_kaged_plugin(tmp_path, body=body)
    talks = [items([*GREETED, *echo(2, "x", 0), *BYE[:2]], link=link) for link in (1, 2)]
    outcome = played(run, folder, joined("kaged", [item for talk in talks for item in talk]))
    pids = [each.new for finding in outcome.findings for each in finding.differences]
    assert outcome.conversations == 2 and len(set(pids)) == 2


def test_at_some_speed_it_is_the_same(run: Run, tmp_path: Path) -> None:
    folder = write_kaged_plugin(tmp_path)
    assert findings(run, folder, *echo(2, "x", "x"), speed=4.0) == []


def test_a_program_that_cannot_be_started_is_a_finding(run: Run, tmp_path: Path) -> None:
    folder = write_kaged_plugin(tmp_path, command=["./nowhere"])
    (what,) = findings(run, folder)
    assert what.startswith("it cannot be started: ")


def test_what_a_host_says_anew_is_said_anew(run: Run, tmp_path: Path) -> None:
    body = 'def init(m):\n    reply(m, {"name": NAME, "path": m["params"]["manifest_path"]})\n'
    folder = write_ainb_plugin(tmp_path, "p", body)
    asked = call(1, "plugin/init", manifest_path="/elsewhere/manifest.toml", host={"kind": "plugbay", "pid": 1})
    answer = result(1, {"name": "p", "path": "/elsewhere/manifest.toml"})
    assert played(run, folder, recording("ainb", (">", asked), ("<", answer))).findings == []


# Where it would lie.


@pytest.mark.parametrize("line", [2, 3])
def test_a_recording_with_something_taken_out_is_not_played(run: Run, tmp_path: Path, line: int) -> None:
    folder = write_kaged_plugin(tmp_path)
    recorded = recording("kaged", *GREETED, redacted={line: ("/a",)})
    with pytest.raises(UnusableFrame, match=f"in line {line} was redacted at /a"):
        played(run, folder, recorded)
    heard: list[str] = []
    assert played(run, folder, recorded, allow_redacted=True, complain=heard.append).findings == []
    assert len(heard) == 1 and "has placeholders at /a" in heard[0]


def test_a_conversation_without_its_beginning_is_not_played(run: Run, tmp_path: Path) -> None:
    folder = write_kaged_plugin(tmp_path)
    with pytest.raises(UnusableFrame, match="was tapped while it was under way"):
        played(run, folder, recording("kaged", (".", {"event": "joined", "pid": 1}), *echo(2, "x", "x")))


def test_a_recording_of_nothing_is_not_played(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UnusableFrame, match="the recording has no messages"):
        played(run, write_kaged_plugin(tmp_path), recording("kaged"))
