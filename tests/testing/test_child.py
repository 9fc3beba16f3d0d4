"""How a fake plugin's process alters its answers, byte by byte."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from plugbay.sdk.io.stdio import Wire
from plugbay.testing.child import FaultyWire, Record

ANSWER = {"jsonrpc": "2.0", "id": 2, "result": {"a": 1}}
NOTICE = {"jsonrpc": "2.0", "method": "broker.publish", "params": {}}


def line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def frame(message: Any) -> bytes:
    body = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def passed(fault: str, data: bytes) -> bytes:
    """What the host receives of what the SDK writes."""
    read, write = os.pipe()
    wire = FaultyWire(Wire(os.dup(0), write), stays=False)
    wire.arm(fault)
    wire.write(data)
    wire.drop()
    with open(read, "rb") as pipe:
        return pipe.read()


@pytest.mark.parametrize(("write", "framed"), [(line, False), (frame, True)], ids=["lines", "frames"])
@pytest.mark.parametrize("fault", ["never_answers", "garbage_on_stdout", "not_json", "wrong_id", "answers_twice"])
def test_only_the_next_answer_is_touched(write: Any, framed: bool, fault: str) -> None:
    after = {**ANSWER, "id": 3}
    got = passed(fault, write(NOTICE) + write(ANSWER) + write(after))
    assert got.startswith(write(NOTICE)) and got.endswith(write(after))
    middle = got.removeprefix(write(NOTICE)).removesuffix(write(after))
    expected = {
        "never_answers": b"",
        "garbage_on_stdout": b"Loading the model, please wait ...\n" + write(ANSWER),
        "not_json": b'Content-Length: 9\r\n\r\n{"half": ' if framed else b'{"half": \n',
        "wrong_id": write({**ANSWER, "id": 1_000_002}),
        "answers_twice": write(ANSWER) * 2,
    }
    assert middle == expected[fault]


def test_an_id_that_is_text_is_another_text_afterwards() -> None:
    answer = {"type": "response", "request_id": "r1", "status": "ok"}
    assert passed("wrong_id", line(answer)) == line({**answer, "request_id": "r10"})


def test_what_is_done_elsewhere_leaves_the_bytes_alone() -> None:
    assert passed("slow", line(ANSWER)) == line(ANSWER)


def test_a_record_counts_over_processes(tmp_path: Path) -> None:
    assert [Record(tmp_path / "r").count("t", {}) for _ in range(3)] == [0, 1, 2]


def test_a_record_that_cannot_be_written_counts_for_itself_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = Record(tmp_path / "no" / "r")
    assert [nowhere.count("t", {}), nowhere.count("u", {}), nowhere.count("t", {})] == [0, 0, 1]
    assert "host it with unconfined=True" in capsys.readouterr().err
