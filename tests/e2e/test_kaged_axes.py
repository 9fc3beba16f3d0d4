"""Good kaged plugins pass every axis that concerns them, and for every axis there is a plugin that fails it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugbay.conformance.engine.plugin_runner import Status, run_conformance
from plugbay.conformance.engine.scenario import load_all
from tests.conformance import kaged_plugins as kaged
from tests.conformance.complete import assert_complete, unmet_status
from tests.conformance.plugins import mutated
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive, first_alone

AXES = {scenario.id: scenario for scenario in load_all("kaged")}

AREAS: dict[str, tuple[str, ...]] = {
    "talking": ("initialize", "health", "request", "line"),
    "offering": ("tool", "method", "hook"),
    "asking": ("output", "notify", "storage"),
    "leaving": ("shutdown", "leave"),
}


def axes_of(area: str) -> list[str]:
    return [axis_id for axis_id in AXES if axis_id.split(".")[1] in AREAS[area]]


@requirement("kaged:kit-plugin-axes")
@pytest.mark.parametrize("area", first_alone(sorted(AREAS)))
def test_a_good_plugin_passes_every_axis(area: str, tmp_path: Path) -> None:
    report = run_conformance(kaged.kaged_spec(tmp_path), only=axes_of(area))
    assert [(axis.id, axis.detail) for axis in report.axes if axis.status is not Status.PASSED] == []
    assert {axis.id for axis in report.axes} >= {*axes_of(area)}


def test_every_axis_belongs_to_an_area() -> None:
    assert sorted(axis_id for area in AREAS for axis_id in axes_of(area)) == sorted(AXES)


@exhaustive
@requirement("kaged:kit-skips")
def test_a_plugin_that_offers_one_hook_is_held_to_the_rules_for_all_and_told_why_the_others_are_skipped(
    tmp_path: Path,
) -> None:
    report = run_conformance(kaged.kaged_spec(tmp_path, kaged.BARE, kaged.BARE_MANIFEST))
    assert [(axis.id, axis.detail) for axis in report.axes if axis.status in (Status.FAILED, Status.ADVICE)] == []
    reasons = {
        "kaged.tool.answers": "the plugin offers no tool",
        "kaged.tool.unknown": "the manifest declares no tool",
        "kaged.method.answers": "the manifest declares no method",
        "kaged.hook.post_compact": "the manifest declares no hook post_compact",
        "kaged.hook.compacts": "the plugin is not a compactor",
        "kaged.notify.declared": "it sends no notification",
        "kaged.storage.asks": "it asks for no storage",
        "kaged.storage.unanswered": "it asks for no storage",
    }
    assert {axis_id: report.axis(axis_id).detail for axis_id in reasons} == reasons
    assert report.axis("kaged.hook.on_session_idle").status is Status.PASSED
    assert report.axis("kaged.health.well").status is Status.PASSED, "ping will do"


@requirement("kaged:kit-workplace")
def test_a_plugin_works_in_a_folder_that_is_gone_afterwards(tmp_path: Path) -> None:
    leave_word = 'open(os.path.dirname(__file__) + "/told", "w").write(json.dumps(dict(os.environ)))\n'
    source = mutated("incoming = messages()", leave_word + "incoming = messages()", kaged.SOURCE)
    run_conformance(kaged.kaged_spec(tmp_path, source), only=["kaged.initialize.answers"])
    told = (tmp_path / "told").read_text()
    assert '"KAGED_PROJECT_ID": "conformance"' in told
    root = told.partition('"KAGED_CONFIG_ROOT": "')[2].partition('"')[0]
    assert root and not Path(root).exists()
    assert not Path(root).is_relative_to(tmp_path)


SERVE = '    method, id, params = message.get("method"), message.get("id"), message.get("params")\n'
RESULT = "    say(id=id, result=result)"
EARLY = '    if "id" not in message or'
PARSED = "            message = json.loads(line)"
LINE = "        line = line.strip()\n"
NO_JSON = 'fail(0, -32700, "Parse error")\n            continue'
INVALID = 'if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":'
LOOP = "for line in sys.stdin.buffer:"
THE_END = "        break\n    serve"


def when(condition: str, does: str) -> tuple[str, str]:
    """Something wrong that happens when a message arrives that fits."""
    return SERVE, SERVE + f"    if {condition}:\n        {does}\n"


def after(condition: str, does: str) -> tuple[str, str]:
    """Something wrong that happens after an answer."""
    return RESULT, RESULT + f"\n    if {condition}:\n        {does}"


def in_line(does: str) -> tuple[str, str]:
    """Something wrong that happens to every line."""
    return LINE, f"        {does}\n" + LINE


MUTATIONS: dict[str, tuple[tuple[str, str], str]] = {
    "kaged.initialize.answers": (('{"name": "good"', '{"name": "evil"'), "$.result.name"),
    "kaged.initialize.first": (
        ("incoming = messages()", 'say(method="changed", params={})\nincoming = messages()'),
        "$.method: expected nothing",
    ),
    "kaged.initialize.api_version": (('"api_version": 1', '"api_version": "1"'), 'expected 1, got "1"'),
    "kaged.initialize.methods": (('"status.now"]', '"status.now", "status.later"]'), '"status.later"'),
    "kaged.initialize.notifications": (('"notifications": ["changed"]', '"notifications": {}'), "an array"),
    "kaged.initialize.capabilities": ((':write"]', ':write", "net:*"]'), 'got "net:*"'),
    "kaged.initialize.any_params": (when('method == "initialize"', 'params["projects"][0]'), "IndexError"),
    "kaged.initialize.extra_fields": (when('method == "initialize"', 'assert "x_unknown" not in params'), "Assertion"),
    "kaged.initialize.once": (after('method == "initialize"', "say(id=id, result=result)"), "$.id: expected 90, got 1"),
    "kaged.initialize.ready": (when('method == "initialized"', "say(id=None, result={})"), "$.id: expected 90"),
    "kaged.health.answers": (when('method == "health.check"', "return say(id=id)"), "$: expected"),
    "kaged.health.well": (('    "ping": status,\n', '    "ping": remember,\n    "health.check": 1,\n'), "Error"),
    "kaged.request.unknown_method": (('-32601, "Method', '-32600, "Method'), "$.error.code"),
    "kaged.request.unknown_hook": (when("str(method)[:11] == HOOK", "return say(id=id, result=None)"), "$.result"),
    "kaged.request.unknown_notification": (
        when('"id" not in message and "no_such" in method', "fail(0, -32601, method)"),
        "$.id: expected 90, got 0",
    ),
    "kaged.request.number_id": (("id = id if isinstance(id, (int, float))", "id = id % 2**32 if id"), "got"),
    "kaged.request.odd_id": (when("id is not None", "assert id >= 0"), "TypeError"),
    "kaged.request.unasked_reply": (when('"error" in message', 'raise KeyError("unasked")'), "KeyError"),
    "kaged.line.blank": (
        ("if not line:\n            continue", "if not line:\n            sys.exit(1)"),
        "exit code 1",
    ),
    "kaged.line.crlf": (in_line('assert not line.endswith(b"\\r\\n")'), "AssertionError"),
    "kaged.line.blanks_around": (in_line("assert line[:1] != b' '"), "AssertionError"),
    "kaged.line.byte_by_byte": ((LOOP, 'for line in iter(lambda: os.read(0, 65536), b""):'), "got 0"),
    "kaged.line.several_at_once": (in_line("if '\"id\":91' in str(line).replace(' ', ''): continue"), "nothing came"),
    "kaged.line.separators": (
        (LOOP, "for line in (l for r in sys.stdin for l in r.splitlines()):"),
        "$.id: expected 90, got 0",
    ),
    "kaged.line.large": (in_line("assert len(line) < 1 << 20"), "AssertionError"),
    "kaged.line.malformed": ((NO_JSON, "raise"), "JSONDecodeError"),
    "kaged.line.not_an_object": ((INVALID, 'if message.get("jsonrpc") != "2.0":'), "AttributeError"),
    "kaged.line.array": ((INVALID, 'if message.get("jsonrpc") != "2.0":'), "AttributeError"),
    "kaged.line.no_message": ((INVALID, "if not isinstance(message, dict):"), '"result"'),
    "kaged.tool.answers": (('    "good.remember": remember,\n', ""), "-32601"),
    "kaged.tool.once": (after("id == 100", "say(id=id, result=result)"), "got"),
    "kaged.tool.bare_name": (('    "good.echo": echo,\n', '    "good.echo": echo, "echo": echo,\n'), "$.result"),
    "kaged.tool.unknown": (when('"no_such_tool" in str(method)', "return say(id=id, result={})"), "$.result"),
    "kaged.tool.without_context": (when('"good." in str(method)', 'params["_context"]'), "KeyError"),
    "kaged.tool.odd_params": (("not isinstance(params, dict) or", "params is None or"), "case: with"),
    "kaged.tool.several": (when("id == 102", "sys.exit(0)"), "its output ended"),
    "kaged.tool.unicode_raw": ((PARSED, '            message = json.loads(line.decode("latin-1"))'), "unchanged"),
    "kaged.tool.unicode_escaped": (
        (PARSED, '            message = json.loads(line.replace(b"\\\\u", b"u"))'),
        "unchanged",
    ),
    "kaged.tool.large": (('{"text": params["text"]}', '{"text": params["text"] * 2}'), "more than 4,194,304 bytes"),
    "kaged.method.answers": (('    "status.now": status,\n', ""), "-32601"),
    "kaged.hook.answers": (when('"hook.post_compact" in str(method)', "return None"), "nothing came within 1 s"),
    "kaged.hook.on_session_start": (('"inject": "remember this"', '"inject": 7'), "$: expected"),
    "kaged.hook.on_session_idle": (("    return None", "    time.sleep(5)"), "nothing came within 1 s"),
    "kaged.hook.pre_compact": (("else {}", "else []"), "$: expected"),
    "kaged.hook.post_compact": (('"retain": []', '"retain": "all"'), '"retain": "all"'),
    "kaged.hook.compacts": (('params["messages"][-1:]', 'str(params["messages"])'), '"messages": "['),
    "kaged.hook.without_params": (
        ("def on_session_idle(params):", 'def on_session_idle(params):\n    params["transcript"]'),
        "KeyError",
    ),
    "kaged.output.messages": (after("id == 100", 'print("done", flush=True)'), "line: done"),
    "kaged.notify.declared": (('say(method="changed"', 'say(method="moved"'), 'got "moved"'),
    "kaged.notify.rate": (
        when('method == "initialized"', 'for _ in range(101): say(method="changed", params={})'),
        "more than 100 of them within 1 s",
    ),
    "kaged.storage.asks": (('ask("delete", key="k")', 'ask("delete", key="")'), "$: expected"),
    "kaged.storage.declared": (("", ""), 'got "kaged.storage.set"'),
    "kaged.storage.refused": (("        return fail(id, *error.args)", "        raise"), "Error"),
    "kaged.storage.unanswered": (
        (
            '            return message["result"]\n    sys.exit(0)',
            '            return message["result"]\n    time.sleep(60)',
        ),
        "still running 4 s later",
    ),
    "kaged.shutdown.answers": (('    "shutdown": status,\n', ""), "-32601"),
    "kaged.shutdown.exits": ((THE_END, "        time.sleep(60)\n    serve"), "still running 4 s later"),
    "kaged.shutdown.any_params": (when('method == "shutdown"', "len(params)"), "TypeError"),
    "kaged.shutdown.no_orphans": (
        after('method == "shutdown"', 'os.spawnv(os.P_NOWAIT, "/bin/sleep", ["sleep", "600"])'),
        "it exited, but these processes did not",
    ),
    "kaged.shutdown.quiet": ((THE_END, '        print("bye")\n' + THE_END), "line: bye"),
    "kaged.leave.end_of_input": ((THE_END, "        time.sleep(60)\n    serve"), "still running 4 s later"),
    "kaged.leave.before_initialize": ((THE_END, "        time.sleep(60)\n    serve"), "still running 4 s later"),
    "kaged.leave.terminate": (
        (
            "incoming = messages()",
            "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nincoming = messages()",
        ),
        "still running 2 s later",
    ),
    "kaged.leave.not_early": (after('method == "initialize"', "sys.exit(0)"), "it exited on its own"),
}

OTHER_MANIFESTS: dict[str, dict[str, Any]] = {
    "kaged.storage.declared": {**kaged.MANIFEST, "capabilities": ["kaged:storage:read"]},
}
"""Where it is not the program that breaks the rule."""


@requirement("kaged:kit-axes-catch")
@pytest.mark.parametrize("axis_id", first_alone(AXES))
def test_each_axis_catches_a_plugin_that_breaks_its_rule(axis_id: str, tmp_path: Path) -> None:
    (old, new), words = MUTATIONS[axis_id]
    source = mutated(old, new, kaged.SOURCE) if old else kaged.SOURCE
    spec = kaged.kaged_spec(tmp_path, source, OTHER_MANIFESTS.get(axis_id))
    axis = run_conformance(spec, only=[axis_id]).axis(axis_id)
    assert axis.status is unmet_status(axis_id), axis.detail
    assert words in axis.detail
    assert_complete(axis)


def test_no_mutation_is_left_of_an_axis_that_is_gone() -> None:
    assert set(MUTATIONS) == set(AXES)
