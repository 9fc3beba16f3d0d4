"""The public JSON shape of every kind of event."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plugbay.cli.dev import events
from plugbay.cli.render.output import json_bytes
from plugbay.conformance.replay.differences import IgnoredPaths, differences
from plugbay.host.discovery.folders import Found
from plugbay.host.ports import CallRecord
from plugbay.model.errors import Failure, Problem
from plugbay.model.spec import Export, PluginSpec

SPEC = PluginSpec(
    id="p", version="1.0.0", contract="nexo", root=Path("/p"), command=("x",), exports=(Export("tool", "t"),)
)
RECORD = CallRecord("call_1", "p", "1.0.0", "nexo", "t", 0.0, 1.5, Failure("timeout", "late"))


@pytest.mark.parametrize(
    ("event", "shape"),
    [
        (
            events.Watching(SPEC),
            {
                "event": "watching",
                "plugin": {"id": "p", "version": "1.0.0", "contract": "nexo"},
                "root": "/p",
                "exports": [{"kind": "tool", "name": "t"}],
            },
        ),
        (
            events.Validated(Found(Path("/p"), "nexo", None, (Problem("c", "a.b", "m", line=3),))),
            {
                "event": "manifest",
                "usable": False,
                "problems": [{"severity": "error", "code": "c", "path": "a.b", "line": 3, "message": "m"}],
            },
        ),
        (events.Changed(["a.py"]), {"event": "changed", "paths": ["a.py"]}),
        (events.Ready(1.5), {"event": "ready", "duration_ms": 1.5}),
        (events.StderrWritten("x"), {"event": "stderr", "text": "x"}),
        (events.LogNoted("warn", "noise", "x"), {"event": "note", "level": "warn", "about": "noise", "text": "x"}),
        (events.CallStarted("t", [1], False), {"event": "call", "export": "t", "input": [1], "again": False}),
        (events.CallProgressed("t", {"n": 1}), {"event": "progress", "export": "t", "item": {"n": 1}}),
        (
            events.AttachOffered("unix:/x#t", "run", True),
            {"event": "attach", "address": "unix:/x#t", "line": "run", "interactive": True},
        ),
        (events.Attached(7), {"event": "attached", "pid": 7}),
        (events.Detached(7), {"event": "detached", "pid": 7}),
        (events.Remark("x"), {"event": "remark", "text": "x"}),
    ],
)
def test_an_event_is_a_flat_object_that_names_its_kind(event: events.Event, shape: dict[str, object]) -> None:
    assert json.loads(json_bytes(event.to_json())) == shape


def test_a_failure_is_reported_in_the_shape_of_plugbay_call() -> None:
    failure = Failure("crashed", "gone", detail={"exit_code": 1})
    assert events.Failed(failure).to_json() == {"event": "failed", "failure": failure.to_json()}


def test_a_result_is_reported_like_that_of_plugbay_call_with_differences() -> None:
    changes = differences([1], [2], IgnoredPaths())
    told = json.loads(json_bytes(events.CallFinished(RECORD, None, changes).to_json()))
    assert (told["status"], told["failure"]["code"], told["call_id"], told["duration_ms"]) == (
        "failed",
        "timeout",
        "call_1",
        1.5,
    )
    assert told["differences"] == [{"path": "/0", "gone": "1", "new": "2"}]


def test_a_result_keeps_every_digit() -> None:
    record = CallRecord("call_1", "p", "1.0.0", "nexo", "t", 0.0, 1.5)
    told = json_bytes(events.CallFinished(record, b'{"n":1.10}', None).to_json())
    assert b'"n":1.10' in told
